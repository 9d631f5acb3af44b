"""The rule of ties among mixed plans: of equally fast ones fewer devices, then fewer stages (PROBLEM.md section 5).

The search finds one of the fastest plans of a configuration and a number of stages, whatever devices it uses. Where
that is as fast as the best plan the configuration is searched again, with the devices among what its stages must add
up to: first for fewer than the best plan has, until there is none, then for as many. All others are settled: they have
no plan as fast, or none that could be ahead in rank.
"""

from collections.abc import Callable, Iterable

from attrs import evolve

from nest.solve.dp.found import Found
from nest.solve.dp.mixed.configurations import MixedConfiguration
from nest.solve.dp.mixed.search import MixedSearch, MixedTask
from nest.solve.dp.run import Run
from nest.tolerances import TIE


def ahead_in_rank(
    best: Found, least: float, searcher: MixedSearch, begin: Callable[[MixedSearch, Found], Run[MixedTask]]
) -> Found:
    """The first in rank of the plans that tie with the fastest.

    Args:
        best: one of them.
        least: batch time of the fastest, seconds.
        searcher: has searched all mixed plans.
        begin: a search with a plan in hand.
    """
    tied = [configuration for value, configuration in searcher.met if value <= least * (1 + TIE)]

    def among(devices: range) -> Found:
        searcher.configurations = list(_using(devices, searcher, tied))
        run = begin(searcher, best)
        run.limit = least
        run.find_best()
        return run.best or best

    while (fewer := among(range(1, best.rank[0]))) is not best:
        best = fewer
    return among(range(best.rank[0], best.rank[0] + 1))


def _using(
    devices: range, searcher: MixedSearch, configurations: Iterable[MixedConfiguration]
) -> Iterable[MixedConfiguration]:
    """The configurations with plans that use so many devices, and only these plans."""
    for each in configurations:
        narrowest = min(searcher.instance.candidates[index].width for index, _ in each.members)
        totals = each.tally.totals or range(narrowest * each.stage_counts[0], each.size + 1)
        kept = frozenset(total for total in totals if total * each.replicas in devices)
        if kept:
            yield evolve(each, tally=evolve(each.tally, totals=kept))
