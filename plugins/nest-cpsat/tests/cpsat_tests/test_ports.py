"""Ports: CP-SAT and the brute force agree, whatever hides, shards, mixes or is dealt (PROBLEM.md section 4, Ports)."""

from random import Random
from typing import Any

import numpy
import pytest
from attrs import evolve

from cpsat_tests.asking import CLOSE, ask, instance_of, settles
from cpsat_tests.test_layers import never_contradicts
from cpsat_tests.test_verify import crowded, every_placement
from cpsat_tests.without_bounds import leave_cases_to_models
from nest.instance import Candidate, ParameterGroup, RecomputeMode, Solution, StageDecision
from nest.plan.evaluate import evaluate
from nest_cpsat import chunk_models, search
from tests.agreement.ports import occupy
from tests.agreement.problems import random_problem
from tests.oracle.brute_force import solve
from tests.seeds import blocks, few, seeds
from tests.small_instances import instance

KINDS = ("plain", "mixed", "chunked", "sharded", "sharded mixed")


def random_ports(seed: int, kind: str) -> dict[str, Any]:
    """A random problem whose candidates say how busy ports are; mostly some of what is sent once per batch hides."""
    random = Random(f"{kind} {seed}")
    plain = {"sharded": "plain", "sharded mixed": "mixed"}.get(kind, kind)
    problem = random_problem(random, plain, sharded=plain != kind)
    occupy(random, problem)
    problem["training"] |= {"exposed": random.choice([0.0, 0.3, 0.3, 1.0]), "hiding": random.random() < 0.5}
    if kind == "chunked" and random.random() < 0.7:
        problem["training"]["schedule"] = ["interleaved"]
    return problem


def examine(seed: int, kind: str) -> None:
    """The best plan is proved, and found where a slower one is given."""
    problem = random_ports(seed, kind)
    settles(instance_of(problem), solve(problem).batch_time, 1.3)


@pytest.mark.parametrize("kind", few(KINDS, "plain", "sharded"))
@pytest.mark.parametrize("seed", seeds(8, 40, now=(0, 2)))
def test_it_agrees_with_brute_force(seed: int, kind: str) -> None:
    examine(seed, kind)


@pytest.mark.longer
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", seeds(3, 40, 40))
def test_it_agrees_with_brute_force_where_bounds_take_part(
    seed: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small problems are asked in one model without bounds; here each case is, after the bounds."""
    monkeypatch.setattr(search, "FEW_CASES", 0)
    examine(seed, kind)


@pytest.mark.longer
@pytest.mark.parametrize("kind", ["plain", "chunked"])
@pytest.mark.parametrize("seed", seeds(3, 40, 80))
def test_its_models_agree_with_brute_force(seed: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds settle most cases; here each has a model."""
    monkeypatch.setattr(search, "FEW_CASES", 0)
    monkeypatch.setattr(chunk_models.ChunkModels, "bound", lambda *_: 0.0)
    leave_cases_to_models(monkeypatch)
    examine(seed, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", blocks(1000, 1200))
def test_it_agrees_with_brute_force_on_many(block: range, kind: str) -> None:
    for seed in block:
        examine(seed, kind)


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(4, 60))
def test_where_cuts_are_too_many_to_list_it_never_contradicts_brute_force(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MOST_CUTS", 0)
    never_contradicts(random_ports(seed, "plain"))


def test_where_cuts_are_too_many_to_list_ports_count_unless_replicas_occupy_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search, "MOST_CUTS", 0)
    waited = 0
    for seed in (18, 26, 30):  # Stages of the best plans wait for their ports.
        problem = random_ports(seed, "plain")
        problem["constraints"] = ["replicas == 1", "width == 1"]
        best = solve(problem).batch_time
        if best is not None:
            instance = instance_of(problem)
            assert ask(instance, best).status == "proved"
            found = ask(instance, best * 1.3)
            assert found.better is not None
            assert found.better_batch_time == pytest.approx(best, rel=CLOSE)
            waited += any(stage.port_wait > 0 for stage in evaluate(instance, found.better).stages)
    assert waited > 0


@pytest.mark.parametrize("seed", seeds(4, 20))
def test_free_placement_waits_for_ports_too(seed: int) -> None:
    """A layer on each device, so that any order is a plan; which tensors stay in a node decides which port is full."""
    draw = numpy.random.default_rng(seed)
    crowd = crowded((2, 2), draw.uniform(0.5, 4.0, 3).tolist())
    busy = draw.uniform(0.0, 4.0, (2, 4))
    problem = evolve(crowd, candidates=(evolve(crowd.candidates[0], busy=busy),))
    stages = tuple(StageDecision((layer,), 0, "none", 0, layer) for layer in range(4))
    plan = Solution(1, "pp-inner", "1f1b", stages)
    every = [evaluate(problem, each) for each in every_placement(problem, plan)]
    assert any(stage.port_wait > 0 for each in every for stage in each.stages)
    found = ask(problem, evaluate(problem, plan).batch_time * 1.01, free=True)
    assert found.better_batch_time == pytest.approx(evaluate(problem, plan).batch_time, rel=CLOSE)
    assert found.free is not None
    least = min(each.batch_time for each in every)
    best = found.better_batch_time if found.free.better_batch_time is None else found.free.better_batch_time
    assert best == pytest.approx(least, rel=CLOSE)


@pytest.mark.parametrize("few", [0, search.FEW_CASES])
def test_a_slower_mode_stays_where_what_is_sent_once_hides_under_it(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recomputing gives gradients time in which the port is free; the stage is not the slowest."""
    monkeypatch.setattr(search, "FEW_CASES", few)
    zeros = numpy.zeros(2)
    again = {"none": zeros, "full": numpy.array([0.0, 5.0])}
    modes = tuple(RecomputeMode(name, extra, zeros, zeros, zeros) for name, extra in again.items())
    gradients = ParameterGroup("dense", (0,), zeros, numpy.array([0.0, 300.0]), zeros, zeros)
    busy = numpy.array([[0.0, 0.0], [0.0, 1.0]])
    used = Candidate("c", {}, 1, 1, numpy.array([10.0, 1.0]), zeros, (gradients,), modes, zeros[:1], busy=busy)
    asked = ["pp == 2", "replicas == 2"]
    problem = instance([used], zero=(0,), exposed=0.0, rank_orders=("pp-inner",), constraints=asked)
    first = StageDecision((0,), 0, "none", 0, 0)
    quick, slow = (
        evaluate(problem, Solution(2, "pp-inner", "1f1b", (first, StageDecision((1,), 0, name, 0, 1)))).batch_time
        for name in ("none", "full")
    )
    # 4 micro-batches: 300 bytes take 30.04 s at 10 bytes per second, of which 20 s hide under recomputing.
    assert quick == pytest.approx(3 * 10 + 11 + 30.04)
    assert slow == pytest.approx(3 * 10 + 16 + 10.04)
    assert ask(problem, quick).better_batch_time == pytest.approx(slow)
    assert ask(problem, slow).status == "proved"
