"""Where PROBLEM.md could be read in two ways, all readings take the one it rules: small problems that tell them apart.

Each is solved, proved by CP-SAT, checked, evaluated from its decisions and replayed, and compared with the oracle.
"""

from random import Random

import pytest

from nest import api
from nest.api import simulate
from nest.deployment import Limits, violations
from nest.errors import InputError
from nest.formulate.instance import build_instance
from nest.formulate.problem import self_contained
from nest.hooks.registry import Registry, registry
from nest.instance import Solution
from nest.io import structure
from nest.plan.evaluate import evaluate
from nest.spec import PlanDocument, Problem
from nest_cpsat import Price, verify
from tests.agreement.compare import as_json
from tests.agreement.problems import random_problem
from tests.made_up_collectives import Trees, Uncounted, WithArrays, with_models
from tests.oracle.brute_force import solve
from tests.oracle.check import check_document, same

NOTHING = [0.0, 0.0]


def candidate(**changes) -> dict:
    """Two layers on one device, of which the second holds no parameters; nothing is kept and nothing sent on."""
    state = {"ranks": [0], "weights": [6.0, 0.0], "gradients": [6.0, 0.0], "optimizer": [9.0, 0.0], "update": NOTHING}
    usual = {
        "name": "plain",
        "degrees": {},
        "width": 1,
        "samples": 1,
        "forward": [1.0, 1.0],
        "backward": [2.0, 2.0],
        "state": {"dense": state},
        "recompute": {"none": dict.fromkeys(("extra", "first", "more", "peak"), NOTHING)},
        "edge_bytes": [0.0],
    }
    return usual | changes


def problem(fanouts, *candidates, batch=6, links=((1.0, 1.0), (1.0, 0.1)), **more) -> dict:
    """On groups of these sizes, every device as fast inside and outside as `links`: bytes per second, seconds."""
    levels = [
        {"name": f"level {index}", "fanout": fanout, "bandwidth": bandwidth, "latency": latency}
        for index, (fanout, (bandwidth, latency)) in enumerate(zip(fanouts, links, strict=False))
    ]
    profile = {"layers": ["a", "b"], "edges": [[0, 1]], "candidates": list(candidates or [candidate()])}
    cluster = {"memory": 1e3, "levels": levels}
    return {"nest": 1, "training": {"global_batch": batch}, "cluster": cluster, "profile": profile, **more}


def settled(asked: dict, known: Registry | None = None) -> PlanDocument:
    """The best plan, once solver, proof, price, check, replay and oracle agree on it."""
    known = known or registry()
    plan = api.solve(asked, plugins=known)
    document, answer = as_json(plan.to_dict()), solve(asked)
    assert same(plan.batch_time, answer.batch_time)
    assert check_document(document) == []
    assert api.check(document, plugins=known).ok
    assert api.verify(document, plugins=known).verification["status"] == "proved"
    assert found_by_cpsat(asked, known, 2 * plan.batch_time) == pytest.approx(plan.batch_time, rel=2e-6)
    found = simulate(document, plugins=known)
    for replayed, stage in zip(found.stages, plan.stages, strict=True):
        assert same(replayed.synchronisation, stage.sync_time) or replayed.synchronisation == stage.sync_time == 0
    if len(plan.stages) == 1:
        assert same(found.batch_time, plan.batch_time)
    assert not known.warnings  # A model that solver and price disagree on is disabled, and others stand in.
    return plan


def found_by_cpsat(asked: dict, known: Registry, batch_time: float) -> float | None:
    """The best step time that CP-SAT finds, asked for one below `batch_time`."""
    instance = build_instance(self_contained(structure(asked, Problem), None, known), known)

    def pricing(solution: Solution) -> Price:
        found = evaluate(instance, solution)
        return Price(found.batch_time, found.overfull)

    return verify(instance, batch_time, pricing).better_batch_time


def priced(asked: dict, known: Registry | None = None, **fixed) -> PlanDocument:
    """What `nest evaluate` says of these decisions, once it agrees with the oracle."""
    plan = api.evaluate(asked, fix={"pp": 1, "rank_order": "pp-inner", **fixed}, plugins=known or registry())
    assert check_document(as_json(plan.to_dict()), searched=False) == []
    return plan


ONE_STAGE = {"constraints": ["pp == 1", "replicas == 3"], "search": {"zero": [0], "rank_order": ["pp-inner"]}}


def test_a_flat_ring_over_an_uneven_set_has_as_many_members_as_there_are_devices():
    """Three replicas on two nodes of two: the shape is (2, 2), and three devices are a ring."""
    asked = problem([2, 2], batch=3, **ONE_STAGE)
    ring = 2 * 0.1 + 2 / 3 * 6.0 / 1.0
    assert settled(asked).stages[0].sync_time == pytest.approx(2 * ring)
    assert priced(asked, replicas=3, zero=1).stages[0].sync_time == pytest.approx(2 * ring)


def test_sets_of_one_shape_are_told_apart_by_their_members():
    """Three and four replicas have the shape (2, 2); a plan with shard groups of one replicates over all of them."""
    asked = problem([2, 2], batch=12, **ONE_STAGE)
    for replicas in (3, 4):
        ring = (replicas - 1) * 0.1 + (replicas - 1) / replicas * 6.0
        for decisions in ({"zero": 0}, {"zero": 1, "zero_degree": 1}):
            found = priced(asked, replicas=replicas, **decisions)
            assert found.stages[0].sync_time == pytest.approx(2 * ring), decisions
    open_to_both = {**asked, "constraints": ["replicas >= 3"]}
    settled(open_to_both)
    settled({**open_to_both, "search": {"zero": [1, 3], "zero_degree": [1]}})


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_a_stage_without_parameters_reduces_and_gathers_nothing(zero):
    """Two stages, of which the second has nothing to send: no latency, whatever the ZeRO stage."""
    asked = problem([4], links=((10.0, 5.0),), constraints=["pp == 2", "replicas == 2"], search={"zero": [zero]})
    plan = settled(asked)
    assert plan.stages[0].sync_time + plan.stages[0].time > 3.0
    assert (plan.stages[1].time, plan.stages[1].sync_time) == (3.0, 0.0)
    found = priced(asked, pp=2, replicas=2, zero=zero)
    assert (found.stages[1].time, found.stages[1].sync_time) == (3.0, 0.0)


@pytest.mark.parametrize("model", [Trees(), WithArrays()], ids=["one by one", "arrays"])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_no_bytes_cost_nothing_whatever_the_model(model, zero):
    asked = problem(
        [4],
        links=((10.0, 5.0),),
        constraints=["pp == 2", "replicas == 2"],
        search={"zero": [zero]},
        collectives="trees",
    )
    known = with_models(model)
    plan = settled(asked, known)
    assert (plan.stages[1].time, plan.stages[1].sync_time) == (3.0, 0.0)
    assert priced(asked, known, pp=2, replicas=2, zero=zero).stages[1].sync_time == 0.0


@pytest.mark.parametrize("model", [Trees(), WithArrays()], ids=["one by one", "arrays"])
def test_unsharded_gradients_take_one_all_reduce_of_the_model(model):
    """Trees reduce among three in less than two rings: 6 bytes once, not 4/3 of them twice."""
    asked, known = problem([4], links=((1.0, 0.1),), **ONE_STAGE, collectives="trees"), with_models(model)
    reduced = 2 * 1.584962500721156 * 0.1 + 6.0
    assert settled(asked, known).stages[0].sync_time == pytest.approx(reduced)
    for decisions in ({"zero": 0}, {"zero": 0, "zero_degree": 1}, {"zero": 1, "zero_degree": 1}):
        found = priced(asked, known, replicas=3, **decisions)
        assert found.stages[0].sync_time == pytest.approx(reduced), decisions
    rings = 2 * (2 * 0.1 + 2 / 3 * 6.0)
    assert priced(asked, known, replicas=3, zero=1).stages[0].sync_time == pytest.approx(rings)
    pairs = {"constraints": ["pp == 1", "replicas == 4"], "search": {"zero": [1], "zero_degree": [2]}}
    found = settled({**asked, **pairs, "training": {"global_batch": 4}}, known)
    assert found.stages[0].sync_time == pytest.approx(2 * (0.1 + 3.0) + 2 * 0.1 + 3.0)


def test_a_model_that_knows_no_members_is_asked_as_before():
    """It counts the shape, (2, 2), and so four members for three devices."""
    asked, known = problem([2, 2], batch=3, **ONE_STAGE, collectives="trees"), with_models(Uncounted())
    plan = api.solve(asked, plugins=known, verify=True)
    assert plan.stages[0].sync_time == pytest.approx(2 * 2 * 0.1 + 6.0)
    assert plan.verification["status"] == "proved"
    assert api.check(plan, plugins=known).ok
    assert not known.warnings


WIDE = {"degrees": {"tp": 1, "other": 4}, "width": 4, "samples": 2, "recompute": candidate()["recompute"]}
"""Four devices, of which a strategy that nobody knows lets two each see the same samples, if `micro_batch` is 1."""


@pytest.mark.parametrize(("said", "copies"), [(None, 4), (2, 1), (1, 2)])
def test_dp_counts_copies_that_see_different_samples(said, copies):
    told = {} if said is None else {"micro_batch": said}
    asked = problem([8, 2], candidate(**WIDE, **told), batch=24)
    for constraint in (
        f"dp == {2 * copies}",
        f"dp > {copies} and dp % {2 * copies} == 0 and micro_batch == {said or 2}",
    ):
        plan = settled({**asked, "constraints": [constraint, "replicas < 4"]})
        assert plan.data_parallel == 2
        assert violations(plan, Limits(constraints={constraint: "it is made up"}), "made-up") == []
        beyond = Limits(constraints={f"dp < {2 * copies}": "it is made up"})
        assert violations(plan, beyond, "made-up") == [f"dp is {2 * copies}, but it is made up (`dp < {2 * copies}`)"]
    assert priced(asked, dp=2 * copies).data_parallel == 2
    refused = api.solve({**asked, "constraints": ["dp == 5"]})
    assert refused.status == "infeasible"
    if copies > 1:
        with pytest.raises(InputError, match=f"fixed.dp is {copies + 1}, but each replica has"):
            priced(asked, dp=copies + 1)


def test_copies_are_whole():
    asked = problem([8], candidate(**WIDE | {"samples": 3}, micro_batch=2))
    with pytest.raises(
        InputError, match=r"profile.candidates\[0\].micro_batch is 2, which does not divide samples \(3\)"
    ):
        api.solve(asked)


@pytest.mark.longer
def test_stages_of_a_mixed_plan_count_their_own_copies():
    """The wide block is faster at the first layer and the narrow one at the second; one of them holds two copies."""
    narrow = candidate(name="narrow", samples=2, forward=[9.0, 1.0])
    wide = candidate(**WIDE, name="wide", micro_batch=1, forward=[1.0, 9.0])
    asked = problem([8], narrow, wide, batch=4, search={"mixed": True, "zero": [0]})
    both = settled({**asked, "constraints": ["pp == 2", "replicas == 1"]})
    assert {stage.candidate for stage in both.stages} == {"narrow", "wide"}
    assert (
        settled({**asked, "constraints": ["pp == 2", "replicas == 1", "dp * micro_batch == 2"]}).stages == both.stages
    )
    one = settled({**asked, "constraints": ["pp == 2", "replicas == 1", "dp == 2"]})
    assert {stage.candidate for stage in one.stages} == {"wide"}


@pytest.mark.longer
@pytest.mark.parametrize("model", [Trees(), WithArrays()], ids=["one by one", "arrays"])
@pytest.mark.parametrize("kind", ["plain", "mixed", "chunked"])
@pytest.mark.parametrize("seed", range(4))
def test_random_problems_with_a_model_of_trees(seed, kind, model):
    asked = random_problem(Random(seed), kind, sharded=kind != "chunked") | {"collectives": "trees"}
    known = with_models(model)
    plan, answer = api.solve(asked, plugins=known, verify=True), solve(asked)
    assert same(plan.batch_time, answer.batch_time)
    document = as_json(plan.to_dict())
    assert check_document(document) == []
    assert api.check(document, plugins=known).ok
    assert plan.verification["status"] == "proved"
    assert not known.warnings
