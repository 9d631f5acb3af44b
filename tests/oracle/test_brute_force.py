"""The oracle against its own formulas, with nothing folded together, and against plans drawn at random."""

from random import Random

import pytest

from tests.agreement.problems import random_plan, random_problem
from tests.oracle.brute_force import solve
from tests.oracle.check import same
from tests.oracle.enumerate_plans import every_plan
from tests.oracle.price import price, violations

TINY = 4000
"""Explicit plans at most, so that pricing each takes a second."""


def all_or_none(problem: dict) -> list[dict] | None:
    """Every plan, or None when there are too many to price."""
    plans = []
    for plan in every_plan(problem, limit=TINY):
        if plan is None:
            return None
        plans.append(plan)
    return plans


def test_the_oracle_misses_no_plan():
    compared = infeasible = 0
    for seed in range(150):
        problem = random_problem(Random(seed))
        plans = all_or_none(problem)
        if plans is None:
            continue
        compared += 1
        answer = solve(problem)
        priced = [price(problem, plan) for plan in plans]
        fitting = [numbers["batch_time"] for numbers in priced if numbers["fits"]]
        worst = [max(stage["memory"] for stage in numbers["stages"]) for numbers in priced]
        assert same(answer.batch_time, min(fitting, default=None), 1e-12), seed
        if not fitting:
            infeasible += 1
            assert same(answer.reachable_memory, min(worst, default=None), 1e-12), seed
    assert compared > 30
    assert infeasible > 5


@pytest.mark.parametrize("seed", range(60))
def test_no_random_plan_beats_the_oracle(seed):
    random = Random(seed)
    problem = random_problem(random)
    answer = solve(problem)
    if answer.plan is not None:
        numbers = price(problem, answer.plan)
        assert numbers["fits"]
        assert same(numbers["batch_time"], answer.batch_time, 1e-12)
        assert violations(problem, answer.plan) == []
    for _ in range(50):
        plan = random_plan(random, problem)
        if plan is None or violations(problem, plan):
            continue
        numbers = price(problem, plan)
        if not numbers["fits"]:
            continue
        assert answer.batch_time is not None
        assert numbers["batch_time"] >= answer.batch_time * (1 - 1e-12)


def test_the_same_seed_gives_the_same_problem():
    assert random_problem(Random(7)) == random_problem(Random(7))
    assert random_problem(Random(7)) != random_problem(Random(8))
