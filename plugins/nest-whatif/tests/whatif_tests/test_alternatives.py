"""Alternatives: legal plans that decide one thing otherwise, and no such plan is better."""

import pytest

import nest
from nest.spec import PlanDocument, Problem
from nest.whatif.solver import Solver
from nest_whatif.alternatives import Alternative, alternative, questions
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


@pytest.mark.longer
def test_every_decision_of_a_plan_is_asked_about() -> None:
    for plan, problem, solver in solved(range(5), "plain"):
        asked = {each.decision for each in questions(plan, problem, solver)}
        assert {"micro_batch", "pp", "replicas", "schedule", "rank_order", "zero", "recompute"} <= asked
