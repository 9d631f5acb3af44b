"""`search.target` against the oracle, on random problems and made-up frameworks."""

import json
from contextlib import suppress
from random import Random

import pytest

from nest import planner
from nest.deployment import Limits, violations
from nest.errors import InputError
from nest.hooks.registry import registry
from tests.agreement.problems import random_problem
from tests.agreement.targets import NAME, exporter_of, narrowed, random_limits
from tests.oracle.brute_force import solve
from tests.oracle.check import same


def drawn(seed: int, kind: str) -> tuple[dict, dict]:
    random = Random(seed)
    problem = random_problem(random, kind, sharded=kind == "sharded")
    return problem, random_limits(random, problem)


def examine(seed: int, kind: str, *, verify: bool = False) -> str:
    """Whether planner and oracle agree on the best plan that a made-up framework can run; the plan's status."""
    problem, limits = drawn(seed, kind)
    told = f"{kind} {seed}: {json.dumps(problem)} {limits}"
    known = registry([exporter_of(limits)])
    asked = {**problem, "search": {**(problem.get("search") or {}), "target": NAME}}
    oracle = narrowed(problem, limits)
    answer = solve(oracle) if oracle["profile"]["candidates"] else None
    if answer is None or answer.plan is None:
        with suppress(InputError):
            assert planner.solve(asked, plugins=known).status == "infeasible", told
            return "infeasible"
        return "refused"
    plan = planner.solve(asked, plugins=known, verify=verify)
    assert plan.status == "optimal", told
    assert same(plan.batch_time, answer.batch_time), told
    assert planner.check(plan, plugins=known).ok, told
    if verify:
        assert plan.verification["status"] == "proved", told
    assert violations(plan, Limits(**limits), NAME) == [], told
    return "optimal"


@pytest.mark.parametrize("kind", ["plain", "mixed", "chunked", "sharded"])
@pytest.mark.parametrize("seed", range(20))
def test_the_best_plan_that_a_target_can_run_is_found(seed, kind):
    examine(seed, kind)


@pytest.mark.parametrize("kind", ["plain", "mixed", "chunked"])
@pytest.mark.parametrize("seed", range(6))
def test_the_best_plan_that_a_target_can_run_is_proved(seed, kind):
    examine(seed, kind, verify=True)


def test_targets_refuse_some_plans_leave_some_and_cost_some_time():
    """The random targets are worth something: none of these can be told without them."""
    found = [examine(seed, kind) for seed in range(12) for kind in ("plain", "chunked")]
    assert {"refused", "infeasible", "optimal"} <= set(found)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "mixed", "chunked", "sharded"])
@pytest.mark.parametrize("seed", range(1000, 2000))
def test_the_best_plan_that_a_target_can_run_is_found_in_many_problems(seed, kind):
    examine(seed, kind, verify=seed % 5 == 0)
