"""A plan kept as it is while its problem changes: what it then takes, or that it is no plan there."""

from nest.errors import InputError
from nest.formulate.fixed_plan import decided_instance
from nest.hooks.registry import Registry
from nest.instance import Instance, Solution
from nest.plan import PricedPlan
from nest.plan import evaluate as price
from nest.plan.document import solution_of
from nest.plan.legality import permission_violations, structure_violations
from nest.spec import PlanDocument, Problem


def kept_time(problem: Problem, plan: PlanDocument, known: Registry) -> float | None:
    """Batch time, seconds, of a plan's decisions on another problem; None: they do not fit, or are none of its plans.

    Args:
        problem: self-contained: the plan's own with something else in it.
        plan: any plan with decisions.
        known: registered strategies and the like.
    """
    try:
        instance = decided_instance(problem, plan, known)
    except InputError:
        return None
    found = kept(instance, plan, permitted=plan.lower_bound is not None)
    return None if found is None else found[1].batch_time


def kept(instance: Instance, plan: PlanDocument, *, permitted: bool = True) -> tuple[Solution, PricedPlan] | None:
    """A plan's decisions on an instance, priced; None where they do not fit or are none of its plans.

    Args:
        instance: of the other problem.
        plan: any plan with decisions.
        permitted: whether constraints and lists of choices, which do not bind plans nobody searched, count.
    """
    try:
        solution = solution_of(instance, plan)
        if structure_violations(instance, solution) or (permitted and permission_violations(instance, solution)):
            return None
        priced = price(instance, solution)
    except (InputError, ValueError):  # A candidate is gone, or blocks lie outside the cluster.
        return None
    return (solution, priced) if priced.fits else None
