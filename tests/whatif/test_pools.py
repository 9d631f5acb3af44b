"""What pools are worth: each answer is the best plan of the problem that it says."""

from copy import deepcopy
from random import Random
from typing import Any

import pytest

import nest
from nest.io import structure
from nest.report.text.explanation import explanation_text
from nest.spec import Problem
from nest.whatif.pools import pool_changes
from tests.agreement.random_pools import random_pool_problem
from tests.oracle.pools import solve
from tests.pooled_problems import two_pools
from tests.seeds import seeds


def changed(written: dict[str, Any], pool: str, devices: int) -> dict[str, Any]:
    """The problem as somebody would write it who leaves a pool out, or gives it one group more."""
    problem = deepcopy(written)
    cluster, profile = problem["cluster"], problem["profile"]
    if devices < 0:
        cluster["pools"] = [each for each in cluster["pools"] if each["name"] != pool]
        cluster["between"] = [each for each in cluster["between"] if pool not in each["pools"]]
        profile["candidates"] = [each for each in profile["candidates"] if each["pool"] != pool]
    else:
        (own,) = (each for each in cluster["pools"] if each["name"] == pool)
        own["levels"][-1]["fanout"] += 1
    return problem


@pytest.mark.parametrize("seed", seeds(3, 40))
def test_what_pools_are_worth_is_what_brute_force_says(seed: int) -> None:
    problem = random_pool_problem(Random(500 + seed))
    plan = nest.solve(problem)
    answer = nest.explain(plan, only=["pools"])
    assert answer.pools or len(problem["cluster"]["pools"]) == 1
    for each in answer.pools:
        best = solve(changed(problem, each.pool, each.devices)).batch_time
        found = each.outcome.plan
        assert (found is None) == (best is None), (seed, each.pool, each.change)
        if found is not None:
            assert found.batch_time == pytest.approx(best, rel=1e-9), (seed, each.pool, each.change)


def test_an_explanation_of_a_plan_on_pools_is_told() -> None:
    answer = nest.explain(nest.solve(two_pools()))
    told = explanation_text(answer.to_dict())
    assert "What pools are worth" in told
    assert "one node more (2 devices)" in told
    assert "memory of pool slow" in told
    assert "flips" not in answer.parts


def test_a_pool_of_one_level_gets_one_device_more() -> None:
    problem = two_pools()
    problem["cluster"]["pools"][0]["levels"] = [{"fanout": 4, "bandwidth": 100.0, "latency": 0.0}]
    changes = pool_changes(structure(problem, Problem))
    assert [(each.pool, each.change, each.devices) for each in changes] == [
        ("fast", "without it", -4),
        ("slow", "without it", -6),
        ("fast", "one device more", 1),
        ("slow", "one node more (2 devices)", 2),
    ]
