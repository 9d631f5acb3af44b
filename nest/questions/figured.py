"""A plan with all figures of its `summary`, which plans of other versions and other programs may lack."""

from attrs import evolve

from nest.errors import InputError
from nest.formulate.fixed_plan import decided_instance
from nest.hooks.registry import Registry
from nest.plan import evaluate as price
from nest.plan.document import solution_of
from nest.report import figures
from nest.report.plan_summary import SHARE_NAMES
from nest.spec import PlanDocument, Problem

PARTS_OF_THE_BATCH_TIME = set(SHARE_NAMES)


def figured(plan: PlanDocument, problem: Problem, known: Registry) -> PlanDocument:
    """`plan`, priced anew where its summary lacks what questions about it are answered from.

    Args:
        plan: its numbers hold (`nest.planner.check`); an infeasible one has no figures.
        problem: of the plan, self-contained.
        known: registered strategies and the like.

    Raises:
        InputError: the plan cannot be priced.
    """
    needed = {"memory_capacity", "idle_share", "devices", "devices_used", "time_shares", "levels"}
    if plan.batch_time is None:
        return plan
    if needed <= set(plan.summary) and set(plan.summary["time_shares"]) == PARTS_OF_THE_BATCH_TIME:
        return plan
    instance = decided_instance(problem, plan, known)
    try:
        solution = solution_of(instance, plan)
    except ValueError as error:
        raise InputError(f"the plan cannot be priced: {error}") from None
    levels = [level.name for level in instance.cluster.levels]
    told = figures(instance, solution, price(instance, solution), None)
    return evolve(plan, summary={**plan.summary, "levels": levels, **told})
