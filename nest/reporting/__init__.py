"""A plan as one HTML page: drawn from templates, with everything in it that it needs."""

from nest.hooks.registry import Registry, registry
from nest.planner import Source
from nest.reporting.page import page
from nest.spec import PlanDocument

__all__ = ["report"]


def report(plan: Source | PlanDocument, *, plugins: Registry | None = None) -> str:
    """The HTML page of a plan whose numbers hold.

    Args:
        plan: a path, a mapping as read from a file, or a `PlanDocument`; one that says that nothing is feasible gives a
            page that says so.
        plugins: registered exporters and the like; left out, those installed.

    Raises:
        InputError: the plan cannot be read, or its numbers do not hold.
    """
    known = plugins or registry()
    return known.run(lambda: page(plan, known))
