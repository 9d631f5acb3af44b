"""Candidates that cannot be as fast as a plan that is known are not priced, and nothing but statistics tells."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from attrs import evolve

import nest
from nest.formulate import candidates, worth
from nest.formulate.instance import build_instance, formulate
from nest.formulate.problem import read_record, self_contained
from nest.hooks import hook
from nest.hooks.registry import Registry, registry
from nest.instance import Instance
from nest.plan.document import solution_of
from nest.solve.dp import first_plan
from nest.solve.effort import Deadline
from nest.spec import PlanDocument, Problem, Search
from nest.tolerances import LIMIT_SLACK
from tests.agreement.draws import draw
from tests.formulate.conftest import EXPERTS

Build = Callable[..., Problem]

SCHEDULES = sorted(registry().schedules())


def least(instance: Instance, candidate: int) -> float:
    """Seconds of a step at least, were all devices at work all the time."""
    each = instance.candidates[candidate]
    of_a_sample = each.width / each.samples * float((each.forward + each.backward).sum())
    return of_a_sample * instance.space.global_batch / instance.cluster.size


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_no_plan_takes_less_than_its_devices_compute(schedule: str) -> None:
    found, known = 0, registry()
    for number, kind in enumerate(("plain", "chunked", "uneven") * 4):
        problem = draw(Random(f"{kind} {number}").randrange(10**9), kind).problem
        problem["training"]["schedule"] = [schedule]
        plan = nest.solve(problem)
        if plan.batch_time:
            instance = build_instance(self_contained(read_record(problem, Problem)[0], None, known), known)
            solution = solution_of(instance, plan)
            assert plan.batch_time >= least(instance, solution.stages[0].candidate) * (1 - LIMIT_SLACK)
            found += 1
    assert found


def pruned(monkeypatch: pytest.MonkeyPatch, asked: Problem) -> PlanDocument:
    """The answer where candidates are left out from the first on."""
    with monkeypatch.context() as few:
        few.setattr(candidates, "MANY", 1)
        few.setattr(worth, "FEW", 8)
        few.setattr(worth, "TRIED", 3)
        return nest.solve(asked)


CASES: dict[str, dict[str, Any]] = {
    "experts": {"model": EXPERTS},
    "risk": {"model": EXPERTS, "training": {"memory_risk": 0.4, "schedule": ("1f1b", "interleaved", "zero-bubble")}},
    "tight": {"model": EXPERTS, "cluster": {"memory": 6e6}},
    "little": {"model": EXPERTS, "cluster": {"memory": 1e6}},
    "constrained": {"model": EXPERTS, "constraints": ("tp >= 4", "pp >= 2")},
    "never": {"model": EXPERTS, "constraints": ("tp == 3",)},
    "fixed": {"model": EXPERTS, "fixed": {"tp": 2}},
    "uneven": {"model": EXPERTS, "training": {"global_batch": 60, "uneven_batch": True, "micro_batch": (1, 2, 3)}},
    "mixed": {"search": Search(mixed=True), "strategies": {"tp": (1, 2), "cp": (1,)}},
    "operators": {"search": Search(granularity="operator"), "strategies": {"tp": (1, 2), "cp": (1,)}},
    "scheduled": {"model": EXPERTS, "layer_times": "scheduled"},
}


@pytest.mark.parametrize("case", CASES)
def test_the_answer_is_that_of_all_candidates(problem: Build, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = problem(**CASES[case])
    some, every = (evolve(each, statistics={}) for each in (pruned(monkeypatch, asked), nest.solve(asked)))
    assert some == every


def left_out(asked: Problem, known: Registry, monkeypatch: pytest.MonkeyPatch) -> int:
    with monkeypatch.context() as few:
        few.setattr(candidates, "MANY", 1)
        few.setattr(worth, "FEW", 8)
        few.setattr(worth, "TRIED", 3)
        instance, formulation = formulate(asked, known, first_plan=lambda some: first_plan(some, Deadline()))
    every = formulate(asked, known)[0].candidates
    names = {each.name for each in instance.candidates}
    assert all(least(instance, index) > 0 for index in range(len(instance.candidates)))
    if formulation.first is not None:
        whole = evolve(instance, candidates=every)
        slow = [index for index, each in enumerate(every) if each.name not in names]
        assert all(least(whole, index) > formulation.first[1] * worth.SLOWER for index in slow)
    return len(every) - len(instance.candidates)


def test_what_is_left_out_computes_for_longer(problem: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    assert left_out(problem(model=EXPERTS), registry(), monkeypatch) > 0


def test_nothing_is_left_out_where_nobody_knows(problem: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of mixed plans, without any plan, and with a schedule of a plug-in, which may take less than devices compute."""

    class Quick:
        name = "quick"

        def weights(self, micro_batches: int, stages: int) -> tuple[float, float]:
            return 0.0, 0.0

        def in_flight(self, stage: int, stages: int, micro_batches: int) -> int:
            return 1

    class PlugIn:
        @hook
        def nest_schedules(self) -> list[Any]:
            return [Quick()]

    assert left_out(problem(**CASES["mixed"]), registry(), monkeypatch) == 0
    assert left_out(problem(**CASES["little"]), registry(), monkeypatch) == 0
    assert left_out(problem(model=EXPERTS), Registry([PlugIn()]), monkeypatch) == 0
