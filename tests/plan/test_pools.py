"""Plans on several pools, priced, written and checked, against the oracle."""

from typing import Any

import pytest

import nest
from nest.formulate.instance import build_instance
from nest.hooks.registry import registry
from nest.instance import Instance
from nest.io import structure
from nest.plan.document import document, solution_of
from nest.plan.evaluate import evaluate
from nest.plan.legality import structure_violations
from nest.spec import PlanDocument, Problem
from tests import pooled_problems
from tests.oracle.check import differences
from tests.oracle.pools import price, violations
from tests.pooled_problems import plan, two_pools

PLANS = [
    plan([([0, 1, 2], "fast1", 0), ([3, 4], "slow1", 0)]),
    plan([([0, 1], "slow2", 0), ([2, 3], "fast2", 2), ([4], "slow2", 4)]),
    plan([([0], "fast1", 0), ([1], "slow1", 1), ([2], "fast1", 3), ([3], "slow1", 2), ([4], "slow1", 5)]),
    plan([([0, 1], "fast1", 0), ([2], "fast1", 1), ([3, 4], "slow1", 1)], 2, "dp-inner"),
    plan([([0, 1], "fast1", 0), ([2], "fast1", 1), ([3, 4], "slow1", 1)], 2),
    plan([([0, 1, 2, 3, 4], "slow2", 0)], 2),
    plan([([0, 1], "fast2", 0), ([2], "slow1", 0), ([3, 4], "slow1", 1)], 2),
]


@pytest.fixture(scope="module")
def instance() -> Instance:
    return build_instance(structure(two_pools(), Problem), registry())


@pytest.mark.parametrize("decided", PLANS)
def test_every_number_is_the_oracles(instance: Instance, decided: dict[str, Any]) -> None:
    assert violations(two_pools(), decided) == []
    solution = pooled_problems.solution_of(instance, decided)
    assert structure_violations(instance, solution) == []
    priced, numbers = evaluate(instance, solution), price(two_pools(), decided)
    whole = structure(two_pools(), Problem).to_dict()
    written = document(instance, solution, priced, status="feasible", lower_bound=None, problem=whole).to_dict()
    assert differences("", written, {"batch_time": numbers["batch_time"], "fits": numbers["fits"]}) == []
    for stage, expected in zip(written["stages"], numbers["stages"], strict=True):
        assert differences("", stage, expected) == []
    assert solution_of(instance, structure(written, PlanDocument)) == solution


@pytest.mark.parametrize(
    ("decided", "sentence"),
    [
        (plan([([0, 1], "fast1", 0), ([2, 3, 4], "fast2", 2)]), "stages of pool 'fast' use different candidates"),
        (plan([([0, 1], "fast1", 1), ([2], "slow1", 0), ([3, 4], "fast1", 0)]), "overlaps or precedes"),
        (plan([([0, 1], "fast1", 4), ([2, 3, 4], "slow1", 0)]), "needs devices up to 5, but a replica has 4"),
        (plan([([0, 1], "fast2", 1), ([2, 3, 4], "slow1", 0)]), "offset 1 is not a multiple of its width 2"),
        (plan([([0, 1], "fast1", 0), ([2, 3, 4], "slow1", 0)], 5), "need more than the 4 of pool 'fast'"),
    ],
)
def test_what_is_no_plan_is_said(instance: Instance, decided: dict[str, Any], sentence: str) -> None:
    broken = structure_violations(instance, pooled_problems.solution_of(instance, decided))
    assert any(sentence in each for each in broken), broken


def test_a_changed_pool_does_not_pass_the_check(instance: Instance) -> None:
    solution = pooled_problems.solution_of(instance, PLANS[0])
    whole = structure(two_pools(), Problem).to_dict()
    plan_written = document(
        instance, solution, evaluate(instance, solution), status="feasible", lower_bound=1.0, problem=whole
    ).to_dict()
    assert nest.check(plan_written).ok
    plan_written["stages"][0]["pool"] = "slow"
    (sentence,) = nest.check(plan_written).disagreements
    assert "stages[0].pool is 'slow', but candidate 'fast1' is of pool 'fast'" in sentence
