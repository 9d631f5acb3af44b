"""The plan of several chunks that has the least price in a leaf: patterns, places, choices and where units lie."""

import heapq
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice, product
from math import inf
from typing import TYPE_CHECKING

import numpy
from attrs import define
from numpy.typing import NDArray

from nest.solve.dp.by_price import Option, TooMany, Ways
from nest.solve.dp.chunk_costs import Filled
from nest.solve.dp.chunk_memory import chunks_of_stages
from nest.solve.dp.chunk_recurrence import Crossed, Places
from nest.solve.dp.chunk_stages import ChunkStage, Counts
from nest.solve.dp.configurations import Configuration
from nest.solve.dp.pareto import PlacedStage
from nest.solve.search import Best, Incumbent, Meter, Price
from nest.tolerances import TIE

if TYPE_CHECKING:
    from nest.solve.dp.chunks import ChunkSearch

MOST_PASSES = 2**19
"""Passes that the plans of a leaf are replayed for at most: 0.15 s."""

PASSES = 2_000
"""Passes that take as long as all else that a replay needs."""

MOST_OPTIONS = 2**17
"""Options of stages that are looked at in a leaf: a fraction of a second."""


@define(eq=False)
class _Laid:
    """A way through the stages of a leaf: its closed form, and its plans that were not replayed yet."""

    seconds: float
    plans: Iterator[Incumbent]
    done: bool = False


@define(eq=False)
class _Leaf:
    """What is known of a leaf while its plans are replayed.

    Attributes:
        limit: step time to beat, seconds.
        meter: of the search.
        replays: how many are left.
        options: how many may still be looked at.
        best: the best plan that beats it.
        left: no plan that was not looked at is faster, seconds.
    """

    limit: float
    meter: Meter
    replays: int
    options: int = MOST_OPTIONS
    best: Incumbent | None = None
    left: float = inf

    def least(self) -> float:
        """What the closed form of a plan must be below to be worth a replay, seconds."""
        return self.limit if self.best is None else min(self.limit, self.best.value * (1 - TIE))

    def spend(self, options: int) -> None:
        """Look at so many options of stages.

        Raises:
            TooMany: there are none left.
        """
        self.meter.count(options)
        self.options -= options
        if self.options < 0:
            raise TooMany

    def replay(self, way: _Laid, price: Price, most: int) -> None:
        """Replay up to so many of the plans that a way has left, until one takes no longer than its closed form."""
        while most and not way.done and way.seconds < self.least() and self.replays:
            decided = next(way.plans, None)
            if decided is None:
                way.done = True
                break
            self.replays, most = self.replays - 1, most - 1
            self.meter.count(0)
            plan = price(decided)
            if plan.value < self.least():
                self.best = plan


def best_by_price(search: "ChunkSearch", configuration: Configuration, stages: int, limit: float, price: Price) -> Best:
    """The plan of least price that beats `limit`, as far as replays show.

    First one plan of each way through the stages is replayed, its units spread evenly; then the others.
    """
    passes = 2 * configuration.micro_batches * len(search.splits.homes(configuration.schedule, stages)) + PASSES
    leaf = _Leaf(limit, search.meter, max(MOST_PASSES // passes, 1))
    patterns = [
        _of_pattern(search, configuration, filled, places, leaf)
        for filled in search.filled(configuration, stages, limit)
        for places in search.places(configuration, filled)
    ]
    begun = []
    for way in heapq.merge(*patterns, key=lambda each: each.seconds):
        if way.seconds >= leaf.least():
            break
        if not leaf.replays:
            leaf.left = min(leaf.left, way.seconds)
            break
        leaf.replay(way, price, 1)
        begun.append(way)
    for way in begun:
        leaf.replay(way, price, leaf.replays)
        if not way.done:
            leaf.left = min(leaf.left, way.seconds)
    return Best(leaf.best, leaf.left if leaf.left < leaf.least() else inf)


def _of_pattern(
    search: "ChunkSearch", configuration: Configuration, filled: Filled, places: Places, leaf: _Leaf
) -> Iterator[_Laid]:
    """The ways of a pattern, by their closed form."""
    reached = filled.bound
    try:
        for way in _ways(search, configuration, filled, places, leaf).within(leaf.least):
            reached = way.seconds
            laid = _laid(search, configuration, filled, way.stages)
            made = partial(search.plan, configuration, way.seconds, filled, way.stages)
            yield _Laid(way.seconds, map(made, laid))
    except TooMany:
        leaf.left = min(leaf.left, reached)


def _ways(search: "ChunkSearch", configuration: Configuration, filled: Filled, places: Places, leaf: _Leaf) -> Ways:
    recurrence = search.recurrence(configuration, filled, places)
    crossings, runs, last = recurrence.crossings(), recurrence.runs, len(filled.stages) - 1
    kept = [_kept(search, configuration, own, crossed) for own, crossed in zip(filled.stages, crossings, strict=True)]

    def options(stage: int, state: object) -> Sequence[Option]:
        left = numpy.array(state, dtype=numpy.int64)
        further = recurrence.further(stage)
        rest = left - further
        enough = (rest >= 0).all(axis=1) if stage < last else (rest == 0).all(axis=1)
        time, cost, sync = filled.stages[stage].prices.at(crossings[stage])
        own, slot = filled.stages[stage], places.number(stage)
        found = []
        for choice, point in zip(*numpy.nonzero(kept[stage] & enough), strict=True):
            figures = float(cost[choice, point]), float(time[choice, point]), float(sync[choice, point])
            placed = PlacedStage(int(own.prices.columns[point]), 0, slot, int(choice), *figures)
            found.append(Option(tuple(rest[point].tolist()), *figures, placed))
        return found

    slack = tuple(filled.pattern.slack[run] for run in runs)
    nothing = (0,) * len(runs)
    return Ways(last + 1, slack, nothing, options, filled.costs.objective, filled.floor, leaf.spend)


def _kept(
    search: "ChunkSearch", configuration: Configuration, own: ChunkStage, crossed: Crossed
) -> NDArray[numpy.bool_]:
    """The choices of a stage that fit, but for those that another one is no worse than, pass by pass."""
    time, cost, sync = own.prices.at(crossed)
    kept = own.fits & (time < inf)
    for one, other in product(range(len(time)), repeat=2):
        if one != other and search.no_longer(configuration, one, other):
            better = (time[one] <= time[other]) & (cost[one] <= cost[other]) & (sync[one] <= sync[other])
            alike = (time[one] == time[other]) & (cost[one] == cost[other]) & (sync[one] == sync[other])
            if one > other and search.no_longer(configuration, other, one):
                better &= ~alike
            kept[other] &= ~(own.fits[one] & better)
    return kept


def _laid(
    search: "ChunkSearch", configuration: Configuration, filled: Filled, stages: Sequence[PlacedStage]
) -> Iterator[tuple[tuple[Counts, ...], ...]]:
    """Where the units of stages may lie: by stage and chunk those beyond the fixed ones, of each run."""
    entering = (0.0, *search.crossing(filled.pattern, configuration.candidate))
    homes = search.splits.homes(configuration.schedule, len(stages))
    every = []
    for own, stage, held, mine in zip(filled.stages, stages, filled.held, chunks_of_stages(homes), strict=True):
        point = int(numpy.flatnonzero(own.prices.columns == stage.larger)[0])
        mode = configuration.choices[stage.choice].recompute
        more, stashes = search.more(filled.pattern.runs, configuration.candidate, mode)
        stashed = [entering[chunk] if stashes else 0.0 for chunk in mine]
        room = filled.costs.tables.capacity - float(own.prices.table.first[stage.choice, point])
        ways = held.ways(own.prices.further[point], more, held.base(more, stashed), room)
        evenly = sorted(islice(ways, MOST_PASSES // PASSES + 1), key=lambda laid: _unevenness(held.share.fixed, laid))
        every.append(evenly)
    yield from product(*every)


def _unevenness(fixed: Sequence[Counts], laid: Sequence[Counts]) -> int:
    """The less, the more evenly units lie in chunks."""
    return sum(sum(map(sum, each)) ** 2 for each in zip(fixed, laid, strict=True))
