"""The fastest plan of any instance: on its levels, or where these are no network, placed on it."""

from collections.abc import Sequence
from typing import Any

from nest.instance import Instance, Result, Solution
from nest.solve.effort import Deadline
from nest.solve.search import Progress


def solve(
    instance: Instance,
    time_limit: float | Deadline | None = None,
    progress: Progress | None = None,
    *,
    known: tuple[Solution, float] | None = None,
    besides: Sequence[Solution] = (),
    **options: Any,
) -> Result:
    """The plan of least step time with its proof, or why there is none; see `nest.solve.any_graph.solve`.

    Args:
        instance: the problem.
        time_limit: seconds after which the best plan so far is returned with its proven bound; or a deadline.
        progress: called now and then with how far the search is.
        known: a plan that fits, with its step time in seconds; None: no plan is known.
        besides: plans that are known; neither they nor what they cover is looked for.
        options: further ones of `nest.solve.dp.solve`.

    Raises:
        InputError: a constraint cannot be computed.
        NoPlanYet: the deadline is over, and there is no plan.
    """
    if instance.pools is not None:
        from nest.solve.dp.pool_solver import solve as solve_on_pools

        options.pop("preferred", None)  # Ties are broken the same way whatever is known.
        options.pop("cache", None)
        return solve_on_pools(instance, time_limit, progress, known=known, besides=besides, **options)
    if instance.network is not None:
        from nest.solve.placement.search import solve as solve_on_network

        return solve_on_network(instance, time_limit, progress, known=known, besides=besides)
    from nest.solve.any_graph import solve as solve_on_levels

    return solve_on_levels(instance, time_limit, progress, known=known, besides=besides, **options)
