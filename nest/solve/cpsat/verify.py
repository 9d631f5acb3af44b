"""Asks for a plan better than the one given; where there is none, that is the proof (PROBLEM.md section 7)."""

import time
from collections.abc import Callable
from math import inf

from attrs import evolve

from nest.instance import Instance, Standing
from nest.solve.cpsat.cuts import list_cuts
from nest.solve.cpsat.layer_search import LayerSearch
from nest.solve.cpsat.path_search import PathSearch
from nest.solve.cpsat.search import Effort, Search
from nest.solve.cpsat.verification import Price, Pricing, Verification
from nest.solve.effort import Deadline

__all__ = ["Price", "Pricing", "Verification", "verify"]

MOST_CUTS = 600
"""Cuts up to which the stages between them are listed: 600 make 180,000 stages, priced in seconds."""

Progress = Callable[[Standing], None]


def verify(
    instance: Instance,
    batch_time: float | None,
    pricing: Pricing,
    *,
    free: bool = False,
    time_limit: float | Deadline | None = None,
    workers: int = 1,
    seed: int = 0,
    progress: Progress | None = None,
) -> Verification:
    """Whether no plan is better than `batch_time` by more than 1e-6 of it (PROBLEM.md sections 5 and 7).

    Args:
        instance: the problem.
        batch_time: seconds of the plan given; None: the claim is that there is no plan at all.
        pricing: prices a plan exactly.
        free: also ask for plans whose blocks lie anywhere in their replica and in any order.
        time_limit: seconds after which what is not settled is left open; or a deadline.
        workers: threads of CP-SAT; the answer is the same from run to run for each number of them.
        seed: of CP-SAT.
        progress: told now and then how far the proof is.

    Raises:
        InputError: a constraint cannot be computed.
        InternalError: CP-SAT's model and exact pricing disagree on a plan.
    """
    started = time.monotonic()
    effort = Effort(workers, seed, Deadline.of(time_limit))
    best = inf if batch_time is None else batch_time
    cuts = list_cuts(instance, MOST_CUTS)

    def searching(best: float, ordered: bool) -> Search:
        if cuts is None:
            return LayerSearch(instance, pricing, effort, best, progress, ordered=ordered)
        return PathSearch(instance, pricing, effort, best, progress, ordered=ordered, cuts=cuts)

    search = searching(best, ordered=True)
    found = search.run()
    if free:
        found = evolve(found, free=searching(search.best, ordered=False).run())
    return evolve(found, seconds=time.monotonic() - started)
