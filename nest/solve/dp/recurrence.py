"""The recurrence `dp[l][D][k][s]` of PROBLEM.md section 6 for one candidate, replica count, order and stage count.

Stages are counted from the end: stage `j` is followed by `j - 1` others, which fixes its micro-batches in flight, so
memory is checked inside. An entry is the least sum of stage times under a limit on each stage's time and on its
gradient reduction. Slots with the same future share their entries.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import inf
from typing import Any, NamedTuple

import numpy
from attrs import define, field
from numpy.typing import NDArray

from nest.instance import Array, Level, Weights
from nest.solve.dp.choices import Boundary
from nest.solve.dp.configurations import Slots
from nest.solve.dp.fastest import Fastest, cheapest
from nest.solve.dp.pairs import Band, Pairs, Rows
from nest.solve.dp.pareto import Partition, PlacedStage
from nest.solve.dp.stages import StageTables
from nest.solve.dp.surroundings import Placements, Surroundings, Way, placements
from nest.solve.search import Meter

REMEMBERED_BYTES = 128 * 2**20
"""Most bytes of choices a recurrence keeps between runs: 200 layers that all differ take 1.2 s with them, else 3.1."""


def boundary_times(cut: Array, level: Level) -> Array:
    """Point-to-point seconds of each cut over one level (PROBLEM.md section 1)."""
    times: Array = numpy.where(cut > 0, level.latency + cut / level.bandwidth, 0.0)
    return times


def weighed_boundaries(times: Array, weights: Weights | None) -> tuple[Array, Array]:
    """What boundaries of so many seconds behind a stage and in front of it add to the sum that is to be least."""
    return (times, times) if weights is None else (weights.returning * times, weights.arriving * times)


class Boundaries(NamedTuple):
    """Seconds that a boundary at each level adds to the stages beside it.

    Attributes:
        times: per level that occurs, seconds for each downset cut there, shape `(levels, downsets)`.
        relaxed: the cheapest over those levels, shape `(downsets,)`.
        steps: position in `times` of the level between neighbouring slots.
        levels: the level of each row of `times`.
    """

    times: Array
    relaxed: Array
    steps: NDArray[numpy.int64]
    levels: tuple[int, ...]

    def at(self, step: int, downset: int) -> Boundary:
        """The boundary at one cut, over the level of row `step`."""
        return Boundary(self.levels[step], float(self.times[step, downset]))


def boundaries(cut: Array, slots: Slots, levels: Sequence[Level]) -> Boundaries:
    """Boundary times of every level that occurs between `slots`."""
    result = slots.levels
    if not result:
        return Boundaries(numpy.zeros((1, len(cut))), numpy.zeros(len(cut)), slots.steps, (0,))
    times = numpy.array([boundary_times(cut, levels[level]) for level in result])
    return Boundaries(times, times.min(axis=0), numpy.searchsorted(result, slots.steps), result)


def cheapest_stage(
    pairs: Pairs,
    best: Fastest,
    behind: Array,
    front: Array,
    entering: tuple[int, int],
    future: Array,
    time_limit: float,
    slot: int,
    member: int = 0,
) -> tuple[float, int, PlacedStage]:
    """Of the stages from one downset on, the one with the least sum with what follows it.

    Args:
        pairs: the stages.
        best: their fastest choices.
        behind: what a boundary behind costs, per level, shape `(levels, downsets)`.
        front: what one in front costs.
        entering: the downset, and the level of the boundary in front.
        future: least cost of what follows, by the level of the boundary behind and downset.
        time_limit: most seconds a stage may take per micro-batch.
        slot: as `PlacedStage`.
        member: as `PlacedStage`.

    Returns: the sum, the level of the boundary behind, and the stage.
    """
    larger, level_in = entering
    row = pairs.of_downset(larger)
    below = pairs.smaller[row]
    own = (pairs.spread(best.cost, row) + behind[:, below]) + front[level_in, larger]
    for level_out in range(len(own)):
        best.settle(own[level_out], row, level_out, level_in, time_limit)
    cost = own + future[:, below]
    level_out, column = (int(i) for i in numpy.unravel_index(cost.argmin(), cost.shape))
    pair, least = row.start + column, float(own[level_out, column])
    time, sync, choice = best.chosen(pair, pairs.class_of(pair), level_out, level_in, least, time_limit)
    placed = PlacedStage(larger, int(below[column]), slot, choice, least, time, sync, member)
    return float(cost[level_out, column]), level_out, placed


Costs = Callable[[int, int], Array]
"""What stages cost between boundaries of levels behind and in front: the last rows of the rectangle of their band."""


class Step(NamedTuple):
    """What one stage adds to a chain.

    Attributes:
        least: what it costs at least with what follows, between boundaries of levels behind and in front; for each of
            its larger downsets.
        heads: where these lie in such an array.
        size: how many stages there are.
    """

    least: Callable[[Array, int, int], Array]
    heads: Any
    size: int


def least_sums(
    count: int, margin: int, surroundings: Sequence[Iterable[Surroundings]], steps: Iterable[Step], meter: Meter
) -> list[list[Array]]:
    """What follows each stage costs at least by its surroundings, then all; as far as anything is within the limits.

    Args:
        count: number of downsets.
        margin: how many places, all infinite, are in front of these. Shape of each `(margin + count,)`.
        surroundings: those of each stage, counted from the last.
        steps: of each stage.
        meter: counts the work.
    """
    end = numpy.full(margin + count, inf)
    end[margin] = 0.0
    every = [[end]]
    for own, step in zip(surroundings, steps, strict=False):
        known, entries = dict[tuple[int, Way], Array](), list[Array]()
        for level_in, ways in own:
            for way in ways:
                # Surroundings have most of their ways in common.
                if (level_in, way) not in known:
                    known[level_in, way] = step.least(least_of(every[-1], way[1]), way[0], level_in)
            entry = numpy.full(margin + count, inf)
            entry[step.heads] = least_of([known[level_in, way] for way in ways])
            entries.append(entry)
        meter.count(step.size * len(known))
        if not any(float(numpy.minimum.reduce(entry)) < inf for entry in entries):
            break
        every.append(entries)
    return every


def least_of(arrays: Sequence[Array], places: Sequence[int] | None = None) -> Array:
    """The least of some, number by number."""
    some = arrays if places is None else [arrays[place] for place in places]
    least: Array = some[0] if len(some) == 1 else numpy.minimum.reduce(some)
    return least


def line(tables: StageTables, stages: int, time_limit: float) -> list[tuple[int, int, int]] | None:
    """Of each of so many stages, counted from the last, the first larger downset, the last, and how many lie between.

    None takes longer than `time_limit`; None where there is none of some. Only of stages in line.
    """
    pairs = tables.pairs
    first, last = tables.windows(stages, time_limit)
    begin, end = pairs.heads.searchsorted(first), pairs.heads.searchsorted(last + 1)
    if (begin >= end).any():
        return None
    ends = numpy.append(pairs.starts, len(pairs))
    heads = pairs.heads[begin].tolist(), pairs.heads[end - 1].tolist(), (ends[end] - ends[begin]).tolist()
    return list(zip(*heads, strict=True))


def line_steps(band: Band, heads: Iterable[tuple[int, int, int]], costs: Iterable[Costs]) -> Iterator[Step]:
    """Those of a `line`, with a margin of as many places as the band has rows; `costs` are of each stage."""
    for cost, (first, last, size) in zip(costs, heads, strict=True):
        places = slice(band.widest + first, band.widest + last + 1)
        yield Step(partial(_least, band, cost, first, last), places, size)


def _least(band: Band, cost: Costs, first: int, last: int, after: Array, level_out: int, level_in: int) -> Array:
    """As `Step.least`, of larger downsets from `first` to `last`."""
    own = band.columns(cost(level_out, level_in), first, last)
    least: Array = numpy.minimum.reduce(own + band.below(after, first, last)[band.widest - len(own) :])
    return least


def _within(cost: Array, time_limit: float) -> Array:
    """What costs no more than the limit; the rest is infinite, and first rows where all is are left out."""
    if time_limit == inf:
        return cost
    own = numpy.where(cost > time_limit, inf, cost)
    return own[int((own < inf).any(axis=1).argmax()) :]


@define(eq=False, repr=False)
class Recurrence:
    """The recurrence for a fixed number of stages.

    With as many slots as stages and one level it is the relaxation in which every boundary is at its cheapest.

    Attributes:
        tables: the stages' choices.
        in_flight: micro-batches in flight of stage `j` from the end, at index `j - 1`.
        times: boundary seconds per level, shape `(levels, downsets)`.
        steps: level (index into `times`) between neighbouring slots; slots are one more.
        levels: the level of each row of `times`; `UNKNOWN` in the relaxation.
        meter: counts the work.
        weights: what the schedule weighs apart; None: the sum is that of the stages' times.
    """

    tables: StageTables
    in_flight: tuple[float, ...]
    times: Array
    steps: NDArray[numpy.int64]
    levels: tuple[int, ...]
    meter: Meter
    weights: Weights | None = None
    _around: tuple[Array, Array] = field(init=False)
    _placements: Placements = field(init=False)
    _best: dict[float, Fastest] = field(factory=dict, init=False)
    _best_limit: float = field(default=-1.0, init=False)

    @_around.default
    def _weighed_boundaries(self) -> tuple[Array, Array]:
        return weighed_boundaries(self.times, self.weights)

    @_placements.default
    def _slots(self) -> Placements:
        return placements(tuple(self.steps.tolist()), self.stages)

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.in_flight)

    def _fastest(self, stage: int, sync_limit: float) -> Fastest:
        """Fastest choices of the stage, remembered from one run to the next while the limit stays."""
        if self._best_limit != sync_limit:
            self._best.clear()
            self._best_limit = sync_limit
        flying = self.in_flight[stage - 1]
        fits = self.tables.same_fits(flying)
        if fits in self._best:
            return self._best[fits]
        best = cheapest(self.tables, flying, sync_limit, self.times, self.levels, self.weights)
        if sum(each.bytes for each in (*self._best.values(), best)) <= REMEMBERED_BYTES:
            self._best[fits] = best
        return best

    def _between(self, best: Fastest, band: Band, level_out: int, level_in: int) -> Array:
        """What stages cost between boundaries of these levels, in the rectangle of a band."""
        cells, (behind, front) = band.filled(self.tables.pairs.spread(best.cost)), self._around
        first, last = band.first, band.first + band.heads - 1
        cells += band.below(band.padded(behind[level_out]), first, last)
        cells += front[level_in, first : last + 1]
        return cells

    def run(self, time_limit: float, sync_limit: float) -> Partition | None:
        """A partition and placement with the least sum of stage times, or None when none keeps the limits.

        Args:
            time_limit: most seconds any stage may take per micro-batch.
            sync_limit: most seconds any stage may synchronise per batch.
        """
        pairs, margin, steps = self.tables.pairs, 0, self._gathered(time_limit, sync_limit)
        if self.tables.in_line:
            every = [self._fastest(stage, sync_limit) for stage in range(1, self.stages + 1)]
            if all(best.settled for best in every):
                heads, band = line(self.tables, self.stages, time_limit), pairs.band
                if heads is None or band is None:
                    return None
                margin, steps = band.widest, line_steps(band, heads, self._in_line(band, every, time_limit))
        rests = least_sums(pairs.count, margin, self._placements.surroundings, steps, self.meter)
        if len(rests) <= self.stages or not min(float(rest[-1]) for rest in rests[-1]) < numpy.inf:
            return None
        return self._recover([[rest[margin:] for rest in each] for each in rests], time_limit, sync_limit)

    def _in_line(self, band: Band, every: Sequence[Fastest], time_limit: float) -> Iterator[Costs]:
        """What stages cost with these choices, in a band."""
        known = dict[tuple[Fastest, int, int], Array]()

        def cost(best: Fastest, level_out: int, level_in: int) -> Array:
            key = (best, level_out, level_in)
            if key not in known:
                known[key] = _within(self._between(best, band, level_out, level_in), time_limit)
            return known[key]

        return (partial(cost, best) for best in every)

    def _gathered(self, time_limit: float, sync_limit: float) -> Iterator[Step]:
        """The steps of any stages, worked out one after the other."""
        for after in range(self.stages):
            rows = self.tables.window(after, self.stages - after - 1, time_limit)
            if not len(rows):
                return
            best = self._fastest(after + 1, sync_limit)
            yield Step(partial(self._least, best, rows, time_limit, {}), rows.heads, len(rows))

    def _least(
        self,
        best: Fastest,
        rows: Rows,
        time_limit: float,
        known: dict[tuple[int, int], Array],
        after: Array,
        level_out: int,
        level_in: int,
    ) -> Array:
        """As `Step.least`; what they cost is known from one call to the next."""
        pairs, (behind, front) = self.tables.pairs, self._around
        smaller = pairs.smaller[rows.pairs]
        if (level_out, level_in) not in known:
            cost = pairs.spread(best.cost, rows.pairs) + behind[level_out].take(smaller)
            cost += front[level_in].take(pairs.larger[rows.pairs])
            # The cheapest choice does: what a stage chooses changes nothing for the others.
            best.settle(cost, rows.pairs, level_out, level_in, time_limit)
            known[level_out, level_in] = cost
        least: Array = numpy.minimum.reduceat(known[level_out, level_in] + after.take(smaller), rows.starts)
        return least

    def _recover(self, rests: list[list[Array]], time_limit: float, sync_limit: float) -> Partition:
        """The stages behind the least entry; among equals the first slot, lowest level, smallest rest."""
        placed, pairs, stages = self._placements, self.tables.pairs, list[PlacedStage]()
        slots: Sequence[int] = sorted(slot for slot, _ in placed.numbers[-1])
        larger, level = pairs.count - 1, 0
        for stage in range(self.stages, 0, -1):
            entries, numbers = rests[stage], placed.numbers[stage - 1]
            slot = min(slots, key=lambda each: float(entries[numbers[each, level]][larger]))
            future = numpy.full((len(self.times), pairs.count), numpy.inf)
            for behind, some in placed.surroundings[stage - 1][numbers[slot, level]][1]:
                future[behind] = least_of(rests[stage - 1], some)
            best, front = self._fastest(stage, sync_limit), (larger, level)
            _, level, chosen = cheapest_stage(pairs, best, *self._around, front, future, time_limit, slot)
            stages.append(chosen)
            larger = chosen.smaller
            if stage > 1:
                slots = dict(placed.followers(slot, stage))[level]
        return Partition(tuple(stages))

    def placed_side_by_side(self, partition: Partition, boundaries: Boundaries) -> Partition:
        """The same stages and choices in slots 0, 1, ..., with the boundaries they have there."""
        stages, last, pairs = [], len(partition.stages) - 1, self.tables.pairs
        for slot, stage in enumerate(partition.stages):
            kind = pairs.class_of(pairs.place(stage.larger, stage.smaller))
            behind = [boundaries.at(int(boundaries.steps[slot]), stage.smaller)] if slot < last else []
            front = [boundaries.at(int(boundaries.steps[slot - 1]), stage.larger)] if slot > 0 else []
            table = self.tables.tables[stage.choice]
            time, cost, sync = table.between(numpy.array([kind]), self.weights, front, behind)
            figures = float(cost[0]), float(time[0]), float(sync[0])
            stages.append(PlacedStage(stage.larger, stage.smaller, slot, stage.choice, *figures))
        return Partition(tuple(stages))
