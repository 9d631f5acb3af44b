"""A plan as one HTML page: drawn from templates, with everything in it that it needs."""

from collections.abc import Collection

from nest.formulate.problem import Source
from nest.hooks.registry import Registry, registry
from nest.reporting.answers import PARTS, Progress, check_parts
from nest.reporting.page import page
from nest.solve.effort import check_effort
from nest.spec import PlanDocument

__all__ = ["PARTS", "report"]


def report(
    plan: Source | PlanDocument,
    *,
    without: Collection[str] = (),
    time_limit: float | None = None,
    progress: Progress | None = None,
    plugins: Registry | None = None,
) -> str:
    """The HTML page of a plan whose numbers hold.

    Args:
        plan: a path, a mapping as read from a file, or a `PlanDocument`; one that says that nothing is feasible gives a
            page that says so.
        without: of `PARTS`, those that are left out; each takes searches.
        time_limit: seconds for each search, after which its best plan so far counts; None: as long as it takes.
        progress: told what is being searched, how many searches are done, and how many there are at most.
        plugins: registered exporters and the like; left out, those installed.

    Raises:
        InputError: the plan cannot be read, or its numbers do not hold; there is no part called so; or the time limit
            is none.
    """
    check_parts(without)
    check_effort(time_limit)
    known = plugins or registry()
    return known.run(lambda: page(plan, known, without, time_limit, progress))
