"""The oracle against its own formulas, with nothing folded together, and against plans drawn at random."""

from random import Random

import pytest

from tests.agreement.corners import forbid
from tests.agreement.ports import occupy
from tests.agreement.problems import random_plan, random_problem
from tests.agreement.random_schedules import random_schedule_problem
from tests.oracle.brute_force import solve
from tests.oracle.check import same
from tests.oracle.enumerate_plans import every_plan
from tests.oracle.price import price, violations
from tests.seeds import seeds

TINY = 1500
"""Explicit plans at most, so that pricing each takes a moment."""


def all_or_none(problem: dict, limit: int = TINY) -> list[dict] | None:
    """Every plan, or None when there are too many to price."""
    plans = []
    for plan in every_plan(problem, limit):
        if plan is None:
            return None
        plans.append(plan)
    return plans


def mixes(plan: dict) -> bool:
    return len({stage["candidate"] for stage in plan["stages"]}) > 1


def pared(random: Random, problem: dict) -> dict:
    """The problem with fewer modes to choose from, so that more candidates can be spelled out."""
    search = problem.setdefault("search", {})
    search["zero"] = random.sample(search.get("zero", range(4)), 1)
    for candidate in problem["profile"]["candidates"]:
        kept = random.sample(list(candidate["recompute"]), random.choice([1, 1, len(candidate["recompute"])]))
        candidate["recompute"] = {mode: candidate["recompute"][mode] for mode in kept}
    return problem


@pytest.mark.longer
@pytest.mark.parametrize("ports", [False, True], ids=["free", "ports"])
@pytest.mark.parametrize("kind", ["plain", "mixed", "chunked", "schedules"])
def test_the_oracle_misses_no_plan(kind, ports):
    compared = infeasible = mixed = 0
    for seed in range(36):
        random = Random(seed)
        problem = random_schedule_problem(random) if kind == "schedules" else random_problem(random, kind)
        if kind == "mixed" and random.random() < 0.8:
            problem = pared(random, problem)
        if random.random() < 0.3:
            forbid(random, problem)
        if ports:
            occupy(random, problem)
        if seed % 2:
            problem["training"]["price"] = "replay"
        plans = all_or_none(problem)
        if plans is None:
            continue
        compared += 1
        mixed += any(map(mixes, plans))
        answer = solve(problem)
        priced = [price(problem, plan) for plan in plans]
        fitting = [numbers["batch_time"] for numbers in priced if numbers["fits"]]
        worst = [max(stage["memory"] for stage in numbers["stages"]) for numbers in priced]
        assert same(answer.batch_time, min(fitting, default=None), 1e-12), seed
        if not fitting:
            infeasible += 1
            assert same(answer.reachable_memory, min(worst, default=None), 1e-12), seed
    assert compared > 10
    assert infeasible > 1
    assert mixed > 4 if kind == "mixed" else not mixed


@pytest.mark.longer
@pytest.mark.parametrize("kind", ["plain", "mixed", "chunked"])
@pytest.mark.parametrize("seed", seeds(12, 60))
def test_no_random_plan_beats_the_oracle(seed, kind):
    random = Random(seed)
    problem = random_problem(random, kind)
    if seed % 2:
        occupy(random, problem)
    if seed % 3:
        problem["training"]["price"] = "replay"
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
