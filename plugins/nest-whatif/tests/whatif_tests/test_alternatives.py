"""Alternatives: legal plans that decide one thing otherwise, and no such plan is better."""

from typing import Any

import pytest

import nest
from nest import api
from nest.hooks.registry import registry
from nest.io import structure
from nest.spec import PlanDocument, Problem
from nest.whatif.solver import Solver
from nest_whatif.alternatives import Alternative, alternative, questions, searched_problem
from tests.oracle.check import check_document, same
from tests.whatif.small import all_plans, solved

KINDS = ("plain", pytest.param("mixed", marks=pytest.mark.slow), "chunked")


def alternatives(plan: PlanDocument, problem: Problem, solver: Solver) -> list[Alternative]:
    return [alternative(plan, each, solver) for each in questions(plan, problem, solver)]


@pytest.mark.longer
@pytest.mark.parametrize("kind", KINDS)
def test_no_plan_that_differs_is_better_than_the_alternative(kind: str) -> None:
    compared: dict[str, int] = {}
    for plan, problem, solver in solved(range(35), kind):
        plans = all_plans(plan.problem)
        if plans is None:
            continue
        for each in alternatives(plan, problem, solver):
            others = [time for time, decided in plans if each.value not in decided[each.decision]]
            found = each.outcome.plan
            assert same(None if found is None else found.batch_time, min(others, default=None)), each
            if found is None:
                assert each.outcome.refusal
                continue
            compared[each.decision] = compared.get(each.decision, 0) + 1
            assert found.batch_time >= plan.batch_time * (1 - 1e-9)  # type: ignore[operator]
            assert nest.check(found).ok
            assert check_document(found.to_dict()) == []
            assert each.decision in [name for name, _, _ in each.outcome.changes]
    assert {"pp", "zero", "rank_order"} <= set(compared)
    assert sum(compared.values()) > 5


def test_every_decision_of_a_plan_is_asked_about() -> None:
    for plan, problem, solver in solved(range(5), "plain"):
        asked = {each.decision for each in questions(plan, problem, solver)}
        assert {"micro_batch", "pp", "replicas", "schedule", "rank_order", "zero", "recompute"} <= asked


@pytest.mark.longer
def test_what_is_fixed_is_not_asked(model_problem: dict[str, Any]) -> None:
    plan = api.solve({**model_problem, "fixed": {"tp": 2}})
    solver = Solver(registry())
    found = {each.decision: each for each in alternatives(plan, _problem(plan), solver)}
    assert found["tp"].outcome.refusal == "fixed.tp decides it"
    assert found["tp"].asked == ""
    assert found["pp"].asked == f"pp != {len(plan.stages)}"


@pytest.mark.longer
def test_a_plan_that_no_search_found_is_asked_without_what_is_fixed(model_problem: dict[str, Any]) -> None:
    plan = api.evaluate({**model_problem, "fixed": {"tp": 4}, "constraints": ["pp == 2"]})
    assert searched_problem(plan, _problem(plan)).constraints == ()
    found = {each.decision: each for each in alternatives(plan, _problem(plan), Solver(registry()))}
    assert found["tp"].asked == "tp != 4"
    assert found["tp"].outcome.relative is not None
    assert found["tp"].outcome.relative < 0  # Tensor parallelism of 4 is not what this small model needs.
    assert found["tp"].outcome.reason is not None
    assert "less" in found["tp"].outcome.reason


def _problem(plan: PlanDocument) -> Problem:
    found: Problem = structure(plan.problem, Problem)
    return found


@pytest.fixture
def model_problem() -> dict[str, Any]:
    return {
        "nest": 1,
        "model": {"transformer": {"layers": 4, "hidden": 512, "ffn": 1024, "heads": 8, "vocab": 1024}},
        "training": {"global_batch": 16, "sequence_length": 128, "micro_batch": [1, 2]},
        "cluster": {
            "device": "h100-sxm",
            "levels": [
                {"fanout": 4, "bandwidth": 4e11, "latency": 3e-6},
                {"fanout": 2, "bandwidth": 5e10, "latency": 6e-6},
            ],
        },
    }
