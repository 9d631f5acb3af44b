"""Small random problems with their best plans, and all plans there are of them."""

from collections.abc import Iterator
from random import Random
from typing import Any

from nest import api
from nest.hooks.registry import registry
from nest.io import structure
from nest.spec import PlanDocument, Problem
from nest.whatif.solver import Solver
from tests.agreement.problems import random_problem
from tests.oracle.enumerate_plans import every_plan
from tests.oracle.price import candidates_of, price

MOST_PLANS = 1500
"""Explicit plans at most, so that pricing each takes a moment."""


def solved(
    seeds: range, kind: str = "plain", *, feasible: bool = True
) -> Iterator[tuple[PlanDocument, Problem, Solver]]:
    """The best plans of random problems that have (or have not) one, with the problem and what solves others."""
    for seed in seeds:
        plan = api.solve(random_problem(Random(seed), kind))
        if (plan.status == "optimal") == feasible:
            problem = structure(plan.problem, Problem)
            solver = Solver(registry())
            solver.know(problem, plan)
            yield plan, problem, solver


def all_plans(written: dict[str, Any]) -> list[tuple[float, dict[str, set[Any]]]] | None:
    """Step time, and each decision's values, of every plan that fits; None: there are too many to look at."""
    found = []
    for plan in every_plan(written, limit=MOST_PLANS):
        if plan is None:
            return None
        priced = price(written, plan)
        if priced["fits"]:
            found.append((priced["batch_time"], decisions(written, plan)))
    return found


def decisions(written: dict[str, Any], plan: dict[str, Any]) -> dict[str, set[Any]]:
    """The values of each decision that a plan's stages have, as text."""
    used = candidates_of(written, plan)
    names = {name for candidate in written["profile"]["candidates"] for name in candidate["degrees"]}
    found = {
        "micro_batch": {candidate.get("micro_batch", candidate["samples"]) for candidate in used},
        "pp": {len(plan["stages"])},
        "replicas": {plan["replicas"]},
        "schedule": {plan["schedule"]},
        "chunks": {plan.get("chunks", 1)},
        "rank_order": {plan["rank_order"]},
        "zero_degree": {plan.get("zero_degree") or "all"},
        "zero": {stage["zero"] for stage in plan["stages"]},
        "recompute": {stage["recompute"] for stage in plan["stages"]},
        **{name: {candidate["degrees"].get(name, 1) for candidate in used} for name in names},
    }
    return {name: {str(value) for value in values} for name, values in found.items()}
