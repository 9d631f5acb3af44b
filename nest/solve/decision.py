"""Searches that begin with what is known: whether there is a plan of so many seconds, the best beside a good one."""

from typing import Any

from nest.instance import Instance, Result, Solution
from nest.solve import dp
from nest.solve.effort import Deadline
from nest.solve.search import NONE
from nest.solve.solver import solve
from nest.tolerances import AGREEMENT


def fastest_within(instance: Instance, limit: float, deadline: Deadline | None = None) -> Result | None:
    """The fastest plan of an instance if it takes at most `limit` seconds; None: none does, or none is found in time.

    Where more plans would have to be replayed than are, one of them may take that long and is not found.

    The dynamic program begins as if a plan of that time were known, so that what is slower is cut at once: where there
    is none, that is proved by bounds alone, mostly. What it does not search is solved as it is.

    Raises:
        InputError: a constraint cannot be computed.
        NoPlanYet: the deadline is over.
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
    return result if found and result.batch_time is not None and result.batch_time <= limit else None


def solve_beside(
    instance: Instance,
    deadline: Deadline,
    known: tuple[Solution, float] | None,
    cache: dp.SearchCache | None = None,
    *,
    diagnosed: bool = True,
) -> tuple[Result, bool]:
    """What `nest.solve.solver.solve` answers, but for a runner-up, and whether it is the first of the fastest plans.

    Only the dynamic program answers alike whatever it begins with; other searches begin with nothing.

    Args:
        instance: the problem.
        deadline: when the search ends.
        known: a plan of the instance, with its step time in seconds; None: no plan is known.
        cache: of problems searched before; None: none is kept.
        diagnosed: as `nest.solve.dp.solve` has it.

    Raises:
        InputError: a constraint cannot be computed.
        NoPlanYet: the deadline is over, and there is no plan.
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
