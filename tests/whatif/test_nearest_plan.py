"""The nearest plan that a framework can run."""

from itertools import product
from random import Random
from typing import Any

import pytest
from attrs import evolve

from nest import api
from nest.api import nearest
from nest.deployment import Limits, violations
from nest.errors import InputError
from nest.formulate.problem import carried_problem
from nest.formulate.stack import on_stack_of
from nest.hooks.registry import Registry, registry
from nest.whatif import nearest_plan
from tests.agreement.problems import random_problem
from tests.agreement.targets import NAME, exporter_of, random_limits
from tests.made_up_targets import with_frameworks
from tests.seeds import seeds

PROBLEM: dict[str, Any] = {
    "nest": 1,
    "model": {"transformer": {"layers": 6, "hidden": 512, "ffn": 1024, "heads": 8, "vocab": 1024}},
    "training": {"global_batch": 16, "sequence_length": 128, "micro_batch": [1, 2]},
    "cluster": {
        "device": "h100-sxm",
        "levels": [
            {"fanout": 4, "bandwidth": 4e11, "latency": 3e-6},
            {"fanout": 2, "bandwidth": 5e10, "latency": 6e-6},
        ],
    },
}


@pytest.fixture
def never_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small problems lose much by what a target lacks: the nearest plan counts here, however slow it is."""
    monkeypatch.setattr(nearest_plan, "FAR", float("inf"))


def evaluated(known: Registry, **fixed: Any) -> Any:
    return api.evaluate({**PROBLEM, "fixed": fixed}, plugins=known)


def test_a_plan_that_the_target_can_run_is_its_own_nearest() -> None:
    known = with_frameworks(toy=Limits())
    plan = evaluated(known, tp=2, pp=2)
    found = nearest(plan, "toy", plugins=known)
    assert found is not None
    assert found.plan is plan
    assert (found.reasons, found.changes, found.loss) == ((), (), 0.0)


def test_the_loss_is_a_share_of_the_plan_that_was_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    known = with_frameworks(toy=Limits(constraints={"pp == 1": "toy has no pipeline"}))
    plan = evaluated(known, tp=2, pp=2)
    answers = iter([evolve(plan, batch_time=1.25 * plan.batch_time), evolve(plan, batch_time=1.2 * plan.batch_time)])
    monkeypatch.setattr(nearest_plan, "_most_decisions", lambda problem, *_: problem)
    found = nearest_plan.nearest_plan(plan, "toy", known, lambda _: next(answers))
    assert found is not None
    assert (found.loss, found.best_loss) == pytest.approx((0.25, 0.25 / 6))


def test_a_plan_far_slower_than_the_best_of_the_target_is_replaced_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    known = with_frameworks(toy=Limits(constraints={"pp == 1": "toy has no pipeline"}))
    plan = evaluated(known, tp=2, pp=2)
    answers = [evolve(plan, batch_time=share * plan.batch_time) for share in (1.5, 1.2)]
    monkeypatch.setattr(nearest_plan, "_most_decisions", lambda problem, *_: problem)
    found = nearest_plan.nearest_plan(plan, "toy", known, lambda _: answers.pop(0))
    assert found is not None
    assert (found.loss, found.best_loss) == pytest.approx((0.2, 0.0))


@pytest.mark.parametrize(
    ("target", "stack", "tensor"), [("torchtitan", "fsdp", False), ("megatron", "megatron-core", True)]
)
def test_a_problem_takes_the_overlap_of_the_frameworks_own_stack(target: str, stack: str, tensor: bool) -> None:
    said = {**PROBLEM, "training": {**PROBLEM["training"], "stack": "megatron-core", "overlap": {"data": False}}}
    problem = carried_problem(api.evaluate({**said, "fixed": {"tp": 2}}), registry())
    training = on_stack_of(problem, target, registry()).training
    assert (training.stack, training.overlap.tensor, training.overlap.data) == (stack, tensor, False)


def test_guessed_overlap_does_not_pass_on_to_another_stack() -> None:
    asked = {**PROBLEM, "training": {**PROBLEM["training"], "overlap": {"tensor": False}}, "fixed": {"tp": 2}}
    asked["cluster"] = {**PROBLEM["cluster"], "device": "h100-sxm"}
    problem = carried_problem(api.evaluate(asked), registry())
    overlap = on_stack_of(problem, "torchtitan", registry()).training.overlap
    assert (problem.training.overlap.data, overlap.data, overlap.tensor) == (False, True, False)


@pytest.mark.usefixtures("never_far")
@pytest.mark.longer
@pytest.mark.parametrize(
    ("limits", "fixed", "changed"),
    [
        (Limits(zero=(0, 1)), {"pp": 2, "zero": 2}, {"zero"}),
        (Limits(schedules=("1f1b",)), {"pp": 2, "schedule": "gpipe"}, {"schedule"}),
        (Limits(rank_orders=("dp-inner",)), {"pp": 2, "rank_order": "pp-inner"}, {"rank_order"}),
        (Limits(strategies=("sp",)), {"tp": 2, "pp": 2}, {"tp", "replicas"}),
        (Limits(even_stages=True), {"pp": 2, "stages": [1, 5]}, {"stages"}),
        (Limits(recompute=("none", "full")), {"pp": 2, "recompute": "selective"}, {"recompute"}),
        (Limits(constraints={"pp == 1": "no pipeline"}), {"pp": 2}, {"pp", "replicas", "stages"}),
        (Limits(schedules=("1f1b",)), {"pp": 2, "schedule": "interleaved", "chunks": 3}, {"schedule", "chunks"}),
    ],
)
def test_only_what_the_target_lacks_is_given_up(limits: Limits, fixed: dict[str, Any], changed: set[str]) -> None:
    known = with_frameworks(toy=limits)
    plan = evaluated(known, **fixed)
    found = nearest(plan, "toy", plugins=known)
    assert found is not None
    assert found.reasons
    names = {name for name, _, _ in found.changes}
    assert names - {"stages", "micro_batch"} == changed - {"stages"}
    assert ("stages" in names) >= ("stages" in changed)
    assert violations(found.plan, limits, "toy") == []
    assert found.best is not None
    assert found.plan.batch_time is not None
    assert found.plan.batch_time >= found.best * (1 - 1e-9)
    assert found.loss == pytest.approx(found.plan.batch_time / plan.batch_time - 1)


@pytest.mark.longer
def test_nothing_is_near_where_nothing_is_feasible() -> None:
    known = with_frameworks(toy=Limits(constraints={"pp == 5 and replicas == 5": "toy is odd"}))
    assert nearest(evaluated(known, pp=2), "toy", plugins=known) is None


def test_targets_must_say_what_they_can_run() -> None:
    known = with_frameworks(toy=Limits(), mute=None)
    plan = evaluated(known, pp=2)
    with pytest.raises(InputError, match="'mute' states no limits"):
        nearest(plan, "mute", plugins=known)
    with pytest.raises(InputError, match="Did you mean 'toy'"):
        nearest(plan, "toi", plugins=known)


def kept(plan: Any, other: Any) -> tuple[bool, ...]:
    """Which decisions of a plan of one candidate another one keeps, the most important first."""

    def devices(each: Any) -> int:
        return int(each.data_parallel * sum(stage.devices[1] for stage in each.stages))

    def used(each: Any, name: str) -> set[Any]:
        return {getattr(stage, name) for stage in each.stages}

    return (
        plan.candidate.degrees == other.candidate.degrees,
        plan.candidate.samples == other.candidate.samples,
        len(plan.stages) == len(other.stages),
        devices(plan) == devices(other),
        plan.data_parallel == other.data_parallel,
        [stage.layers for stage in plan.stages] == [stage.layers for stage in other.stages],
        plan.schedule == other.schedule,
        plan.chunks == other.chunks,
        plan.rank_order == other.rank_order,
        used(other, "recompute") <= used(plan, "recompute"),
        used(other, "zero") <= used(plan, "zero"),
    )


def _solved(problem: dict[str, Any], known: Registry) -> Any:
    try:
        plan = api.solve(problem, plugins=known)
    except InputError:
        return None
    return None if plan.status == "infeasible" else plan


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(10, 250))
def test_no_plan_of_the_target_keeps_more(seed: int) -> None:
    """The nearest plan against the best for each number of stages and replicas, rank order and ZeRO stage."""
    random = Random(seed)
    problem = random_problem(random, "plain") | {"fixed": None}
    limits = random_limits(random, problem) | {"strategies": None, "mixed": False}
    known = registry([exporter_of(limits)])
    plan = api.solve(problem, plugins=known)
    target = {**problem, "search": {**(problem.get("search") or {}), "target": NAME}}
    if plan.status == "infeasible" or _solved(target, known) is None:
        return
    found = nearest(plan, NAME, plugins=known)
    assert found is not None
    assert violations(found.plan, Limits(**limits), NAME) == []
    assert api.check(found.plan, plugins=known).ok
    if not found.reasons:
        assert found.plan is plan
        return
    mine = kept(plan, found.plan)
    every = product(range(1, 5), range(1, 5), target["search"].get("rank_order", ["pp-inner", "dp-inner"]), range(4))
    for stages, replicas, order, zero in every:
        search = {**target["search"], "rank_order": [order], "zero": [zero]}
        other = _solved({**target, "search": search, "fixed": {"pp": stages, "replicas": replicas}}, known)
        if other is not None and zero in (target["search"].get("zero") or range(4)):
            assert kept(plan, other) <= mine
            assert kept(plan, other) < mine or not mine[0] or other.batch_time >= found.plan.batch_time * (1 - 1e-9)
