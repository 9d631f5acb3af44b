"""Value of pools: each answer is the best plan of the problem that it says."""

from copy import deepcopy
from random import Random
from typing import Any

import pytest

import nest
from nest.hooks.registry import registry
from nest.io import structure
from nest.spec import Problem
from nest.tolerances import HARDLY_FASTER
from nest.whatif.solver import Solver
from nest_whatif.breakpoints import LESS, PRECISION, breakpoint_of, sweeps
from nest_whatif.pools import pool_changes
from nest_whatif.text.explanation import explanation_text
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


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(3, 40, long=[0]))
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


def small() -> dict[str, Any]:
    """Two pools with few choices."""
    return two_pools(search={"zero": [0], "rank_order": ["pp-inner"]})


CHANGES: dict[str, tuple[Any, ...]] = {
    "bandwidth of level 1 of pool fast": ("pools", 0, "levels", 1, "bandwidth"),
    "memory of pool fast": ("pools", 0, "memory"),
    "memory of pool slow": ("pools", 1, "memory"),
    "devices of pool slow": ("pools", 1, "levels", 1, "fanout"),
    "bandwidth between slow and fast": ("between", 0, "bandwidth"),
}
"""Where each number is written."""


def with_number(name: str, factor: float) -> dict[str, Any]:
    """The problem with a number multiplied, as somebody would write it."""
    problem = small()
    place: Any = problem["cluster"]
    *steps, last = CHANGES[name]
    for step in steps:
        place = place[step]
    place[last] = type(place[last])(place[last] * factor)
    return problem


@pytest.mark.longer
@pytest.mark.parametrize("name", ["memory of pool fast", "bandwidth between slow and fast"])
def test_breakpoints_of_pools_lie_between_two_answers(name: str) -> None:
    """On one side the plan is the best or hardly slower, on the other it is not."""
    plan, solver = nest.solve(small()), Solver()
    problem = structure(plan.problem, Problem)
    (sweep,) = (
        each for each in sweeps(plan, problem, registry()) if (each.parameter.name, each.direction) == (name, LESS)
    )
    found = breakpoint_of(plan, problem, sweep, solver)
    assert found.proved
    assert found.precise
    assert found.changed_at is not None
    assert found.same_at / found.changed_at - 1 <= PRECISION
    nominal = sweep.parameter.value
    same, changed = (nest.solve(with_number(name, at / nominal)) for at in (found.same_at, found.changed_at))
    assert same.batch_time is not None
    assert changed.batch_time is not None
    if name.startswith("memory"):
        assert same.batch_time == plan.batch_time
        assert changed.batch_time > plan.batch_time
    else:
        kept = Solver().time_on(sweep.parameter.changed(problem, found.changed_at), plan)
        assert kept is not None
        assert kept > changed.batch_time * (1 + HARDLY_FASTER)


@pytest.mark.longer
def test_an_explanation_of_a_plan_on_pools_is_told() -> None:
    answer = nest.explain(nest.solve(small()), only=["binding", "constraints", "pools", "alternatives"])
    told = explanation_text(answer.to_dict())
    assert "Value of pools" in told
    assert "one node more (2 devices)" in told
    assert "memory of pool slow" in told


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
