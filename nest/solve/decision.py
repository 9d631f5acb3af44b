"""Searches that start from known plans: a plan within so many seconds, the best besides a good one."""

from typing import Any

from nest.instance import Instance, Result, Solution
from nest.solve import dp
from nest.solve.effort import Deadline
from nest.solve.search import NONE
from nest.solve.solver import solve
from nest.tolerances import AGREEMENT


def fastest_within(instance: Instance, limit: float, deadline: Deadline | None = None) -> tuple[Result | None, bool]:
    """Find the fastest plan within `limit` seconds, None if none is found; without one, tell if there is proof of none.

    The dynamic program starts as if a plan of that time were known, so that slower plans are cut at once; bounds alone
    mostly prove that there is none. A plan is missed if it needs more replays than are made.

    Raises:
        InputError: a constraint cannot be computed.
        NoPlanYet: the deadline has passed.
    """
    result: Result | None = None
    if instance.network is None and instance.pools is None and not instance.space.direct:
        try:
            result = dp.solve(instance, deadline, known=(NONE, limit * (1 + AGREEMENT)), runner_up=False)
        except dp.TooManyCuts:
            result = None
    if result is None:
        known = None if instance.pools is None else (NONE, limit * (1 + AGREEMENT))
        result = solve(instance, deadline, known=known)
    found = result.solution is not None and result.solution != NONE
    if found and result.batch_time is not None and result.batch_time <= limit:
        return result, True
    return None, result.status != "feasible" or (result.lower_bound or 0.0) > limit


def solve_beside(
    instance: Instance,
    deadline: Deadline,
    known: tuple[Solution, float] | None,
    cache: dp.SearchCache | None = None,
    *,
    diagnosed: bool = True,
) -> tuple[Result, bool]:
    """Solve without runner-up; also tell whether the result is the first of the fastest plans.

    Only the dynamic program gives the same answer from any start; other searches start from nothing. `known` is a plan
    with its step time in seconds.

    Raises:
        InputError: a constraint cannot be computed.
        NoPlanYet: the deadline has passed without a plan.
    """
    if instance.network is None and instance.pools is None and not instance.space.direct:
        try:
            how: Any = {"runner_up": False, "cache": cache, "diagnosed": diagnosed}
            result = dp.solve(instance, deadline, known=known, preferred=False, **how)
        except dp.TooManyCuts:
            pass
        else:
            return result, result.status == "optimal"
    return solve(instance, deadline, runner_up=False, diagnosed=diagnosed), False
