"""Fastest plan of any instance: on its levels, or on a network that is no hierarchy."""

from collections.abc import Sequence
from math import inf
from typing import Any

from nest.instance import Instance, Result, Solution
from nest.solve import dp
from nest.solve.dp import SearchCache, TooManyCuts
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
    """Find the fastest plan with its proof, or the reason for none; see `solve_on_levels`.

    Args:
        time_limit: seconds, or a deadline; then the best plan so far is returned with its bound.
        known: a plan that fits, with its step time in seconds; None: none is known.
        besides: known plans; neither they nor plans they cover are searched.
        options: further ones of `nest.solve.dp.solve`.

    Raises:
        InputError: a constraint cannot be computed.
        NoPlanYet: the deadline has passed without a plan.
    """
    if instance.pools is not None:
        from nest.solve.dp.pool_solver import solve as solve_on_pools

        options.pop("preferred", None)  # Ties are broken the same way whatever is known.
        options.pop("cache", None)
        return solve_on_pools(instance, time_limit, progress, known=known, besides=besides, **options)
    if instance.network is not None:
        from nest.solve.placement.search import solve as solve_on_network

        return solve_on_network(instance, solve_on_levels, time_limit, progress, known=known, besides=besides)
    return solve_on_levels(instance, time_limit, progress, known=known, besides=besides, **options)


def solve_on_levels(
    instance: Instance,
    time_limit: float | Deadline | None = None,
    progress: Progress | None = None,
    *,
    known: tuple[Solution, float] | None = None,
    preferred: bool = True,
    runner_up: bool = True,
    besides: Sequence[Solution] = (),
    cache: SearchCache | None = None,
    diagnosed: bool = True,
) -> Result:
    """Find the fastest plan, proved optimal, or the best with its bound; or the reason for none.

    Arguments as in `nest.solve.dp.solve`. If the graph has too many cuts for it, ties are not broken, `optimal` means
    that no plan is better by more than 1e-6 (PROBLEM.md section 5), and `besides` only searches some orders of the
    layers.

    Raises:
        InputError: a constraint cannot be computed.
        NoPlanYet: the deadline has passed without a plan.
    """
    deadline = time_limit if isinstance(time_limit, Deadline) else Deadline(time_limit, patience=inf)
    if instance.space.direct:
        from nest.solve.any_graph import sent_directly

        return sent_directly(instance, solve_on_levels, deadline, progress, known=known, besides=besides)
    try:
        return dp.solve(
            instance,
            deadline,
            progress,
            known=known,
            preferred=preferred,
            runner_up=runner_up,
            besides=besides,
            cache=cache,
            diagnosed=diagnosed,
        )
    except TooManyCuts as refused:
        met = refused.answer
    from nest.solve.any_graph import branched

    return branched(instance, deadline, progress, known=known, besides=besides, runner_up=runner_up, met=met)


def feasible(instance: Instance, deadline: Deadline | None = None) -> bool:
    """True if any plan exists, found by the deadline; None: no limit.

    Raises:
        InputError: see `solve_on_levels`.
        NoPlanYet: the deadline has passed without an answer.
    """
    known_by = Deadline(0.0, patience=inf if deadline is None else deadline.left)
    return solve_on_levels(instance, known_by, runner_up=False, diagnosed=False).solution is not None
