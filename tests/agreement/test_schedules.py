"""Schedules of every sort: the planner's pricing and rules against the oracle's, plan by plan."""

from random import Random

import pytest

from tests.agreement.compare import complaint
from tests.agreement.drawn_schedules import registered
from tests.agreement.problems import random_plan
from tests.agreement.random_schedules import random_schedule_problem
from tests.oracle.check import same
from tests.oracle.price import price, violations
from tests.seeds import seeds

NUMBERS = {"time": "time", "sync_time": "sync", "memory": "memory", "in_flight": "in_flight"}
"""What the oracle calls a stage's numbers, and what the planner does."""


def decided(problem: dict, plan: dict):
    """The instance and the solution that the planner makes of a plan, whatever rules it breaks."""
    from nest.formulate.instance import build_instance
    from nest.formulate.problem import whole_problem
    from nest.instance import Solution, StageDecision

    known = registered(problem)
    asked = {key: value for key, value in problem.items() if key != "schedules"}
    instance = build_instance(whole_problem(asked, known)[0], known)
    index = {candidate.name: number for number, candidate in enumerate(instance.candidates)}
    stages = tuple(
        StageDecision(
            tuple(sorted(stage["layers"])),
            index[stage["candidate"]],
            stage["recompute"],
            stage["zero"],
            stage["offset"],
            tuple(tuple(chunk) for chunk in stage["chunks"] or ()),
        )
        for stage in plan["stages"]
    )
    shared = (plan["replicas"], plan["rank_order"], plan["schedule"])
    return instance, Solution(*shared, stages, chunks=plan["chunks"], zero_degree=plan["zero_degree"])


def disagreements(problem: dict, plan: dict) -> list[str]:
    """What the planner's rules and prices say of a plan and the oracle's do not."""
    from nest.plan.evaluate import evaluate
    from nest.plan.legality import permission_violations, structure_violations

    instance, solution = decided(problem, plan)
    structure, broken = structure_violations(instance, solution), violations(problem, plan)
    refused = structure or permission_violations(instance, solution)
    if bool(broken) != bool(refused):
        return [f"the oracle says {broken}, the planner {refused}"]
    if structure:
        return []
    numbers, priced = price(problem, plan), evaluate(instance, solution)
    wrong = []
    if not same(priced.batch_time, numbers["batch_time"]):
        wrong.append(f"batch_time is {priced.batch_time!r}, the oracle says {numbers['batch_time']!r}")
    for number, (found, expected) in enumerate(zip(priced.stages, numbers["stages"], strict=True), start=1):
        for name, theirs in NUMBERS.items():
            # What is left of times that nearly cancel is rounding of these.
            slack = 1e-12 * priced.batch_time if theirs == "sync" else 0.0
            if abs(getattr(found, theirs) - expected[name]) > 1e-9 * abs(expected[name]) + slack:
                wrong.append(f"{name} of stage {number} is {getattr(found, theirs)!r}, not {expected[name]!r}")
        if (found.level_in, found.level_out) != (expected["level_in"], expected["level_out"]):
            wrong.append(f"levels of stage {number} are {found.level_in}, {found.level_out}")
    return wrong


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(24, 1500))
def test_plans_are_priced_and_refused_as_the_oracle_does(seed):
    random = Random(seed)
    problem = random_schedule_problem(random)
    for plan in [plan for plan in (random_plan(random, problem, 2) for _ in range(6)) if plan is not None]:
        wrong = disagreements(problem, plan)
        assert not wrong, complaint(f"seed {seed}: {plan}", problem, wrong)
