"""Searches that begin with what is known: whether there is a plan of so many seconds, the best beside a good one."""

from nest.instance import Instance, Result, Solution
from nest.solve import dp
from nest.solve.dp.solver import simplest
from nest.solve.effort import Deadline
from nest.solve.search import NONE
from nest.solve.solver import solve
from nest.tolerances import AGREEMENT


def fastest_within(instance: Instance, limit: float) -> Result | None:
    """The fastest plan of an instance if it takes at most `limit` seconds; None: there is none.

    Where more plans would have to be replayed than are, one of them may take that long and is not found.

    The dynamic program begins as if a plan of that time were known, so that what is slower is cut at once: where there
    is none, that is proved by bounds alone, mostly. What it does not search is solved as it is.

    Raises:
        InputError: a constraint cannot be computed.
    """
    result: Result | None = None
    if instance.network is None and instance.pools is None and not instance.space.direct:
        try:
            result = dp.solve(instance, known=(NONE, limit * (1 + AGREEMENT)), runner_up=False)
        except dp.TooManyCuts:
            result = None
    if result is None:
        known = None if instance.pools is None else (NONE, limit * (1 + AGREEMENT))
        result = solve(instance, known=known)
    found = result.solution is not None and result.solution != NONE
    return result if found and result.batch_time is not None and result.batch_time <= limit else None


def simplified(
    instance: Instance, result: Result, within: float = AGREEMENT, deadline: Deadline | None = None
) -> Result:
    """A result of the dynamic program, with a simpler plan where that is as fast (`nest.solve.dp.solver.simplest`).

    Args:
        instance: the problem.
        result: of its search, or of `fastest_within`.
        within: share of the step time that the simpler plan may take longer.
        deadline: when searches end; None: however long they take.

    Raises:
        NoPlanYet: the deadline is over.
    """
    if instance.network is not None or instance.pools is not None or instance.space.direct:
        return result

    def search(narrowed: Instance, best: tuple[Solution, float]) -> Result:
        return dp.solve(narrowed, deadline, known=best, runner_up=False)

    try:
        return simplest(instance, result, search, within)
    except dp.TooManyCuts:
        return result


def solve_beside(
    instance: Instance,
    deadline: Deadline,
    known: tuple[Solution, float] | None,
    simpler_within: float | None,
    cache: dp.SearchCache | None = None,
) -> tuple[Result, bool]:
    """What `nest.solve.solver.solve` answers, but for a runner-up, and whether it is the first of the fastest plans.

    It is not where a simpler plan is preferred to that, or nobody knows. Only the dynamic program answers alike
    whatever it begins with; other searches begin with nothing.

    Args:
        instance: the problem.
        deadline: when the search ends.
        known: a plan of the instance, with its step time in seconds; None: no plan is known.
        simpler_within: as `nest.solve.dp.solve` has it.
        cache: of problems searched before; None: none is kept.

    Raises:
        InputError: a constraint cannot be computed.
        NoPlanYet: the deadline is over, and there is no plan.
    """
    if instance.network is None and instance.pools is None and not instance.space.direct:
        try:
            first = dp.solve(instance, deadline, known=known, preferred=False, runner_up=False, cache=cache)
        except dp.TooManyCuts:
            pass
        else:
            result = first if simpler_within is None else simplified(instance, first, simpler_within, deadline)
            return result, result.status == "optimal" and result.solution == first.solution
    return solve(instance, deadline, simpler_within=simpler_within, runner_up=False), False
