"""Whether an instance has a plan that takes no longer than so many seconds, and which."""

from nest.instance import Instance, Result, Solution
from nest.solve import dp
from nest.solve.dp.ties import simplest
from nest.solve.effort import Deadline
from nest.solve.solver import solve
from nest.tolerances import AGREEMENT

NONE = Solution(0, "", "", ())
"""In the place of a plan that is known: what no plan has to beat but the time."""


def fastest_within(instance: Instance, limit: float) -> Result | None:
    """The fastest plan of an instance if it takes at most `limit` seconds; None: it is proved that there is none.

    The dynamic program begins as if a plan of that time were known, so that what is slower is cut at once: where there
    is none, that is proved by bounds alone, mostly. What it does not search is solved as it is.

    Raises:
        InputError: a constraint cannot be computed.
    """
    result: Result | None = None
    if instance.network is None and not instance.space.direct:
        try:
            result = dp.solve(instance, known=(NONE, limit * (1 + AGREEMENT)), runner_up=False)
        except dp.TooManyCuts:
            result = None
    if result is None:
        result = solve(instance)
    found = result.solution is not None and result.solution != NONE
    return result if found and result.batch_time is not None and result.batch_time <= limit else None


def simplified(
    instance: Instance, result: Result, within: float = AGREEMENT, deadline: Deadline | None = None
) -> Result:
    """A result of the dynamic program, with a simpler plan where that is as fast (`nest.solve.dp.ties`).

    Args:
        instance: the problem.
        result: of its search, or of `fastest_within`.
        within: share of the step time that the simpler plan may take longer.
        deadline: when searches end; None: however long they take.

    Raises:
        NoPlanYet: the deadline is over.
    """
    if instance.network is not None or instance.space.direct:
        return result

    def search(narrowed: Instance, best: tuple[Solution, float]) -> Result:
        return dp.solve(narrowed, deadline, known=best, runner_up=False)

    try:
        return simplest(instance, result, search, within)
    except dp.TooManyCuts:
        return result
