"""The recurrence `dp[l][D][k][s]` of PROBLEM.md section 6 for one candidate, replica count, order and stage count.

Stages are counted from the end: stage `j` is followed by `j - 1` others, which fixes its micro-batches in flight, so
memory is checked inside. An entry is the least sum of stage times under a limit on each stage's time and on its
gradient reduction. Slots with the same future share their entries.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy
from attrs import define, field, frozen
from numpy.typing import NDArray

from nest.instance import Array, Level, Weights
from nest.solve.dp.choices import Boundary
from nest.solve.dp.configurations import Slots
from nest.solve.dp.fastest import Fastest, cheapest
from nest.solve.dp.pairs import Band, Pairs, Rows, distinct
from nest.solve.dp.pareto import Partition, PlacedStage
from nest.solve.dp.stages import StageTables
from nest.solve.search import Meter

REMEMBERED_BYTES = 128 * 2**20
"""Most bytes of choices a recurrence keeps between runs: 200 layers that all differ take 1.2 s with them, else 3.1."""

Lower = Callable[[Array, Array, int, Sequence[int]], None]
"""Lowers entries of a slot, by level in front, from what follows over a boundary of some level behind."""


def boundary_times(cut: Array, level: Level) -> Array:
    """Point-to-point seconds of each cut over one level (PROBLEM.md section 1)."""
    times: Array = numpy.where(cut > 0, level.latency + cut / level.bandwidth, 0.0)
    return times


def weighed_boundaries(times: Array, weights: Weights | None) -> tuple[Array, Array]:
    """What boundaries of so many seconds behind a stage and in front of it add to the sum that is to be least."""
    return (times, times) if weights is None else (weights.returning * times, weights.arriving * times)


@frozen(eq=False, repr=False)
class Boundaries:
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
    _reach: list[list[int]] = field(init=False)
    _best: dict[float, Fastest] = field(factory=dict, init=False)
    _costs: dict[tuple[int, int, int], tuple[Fastest, Array]] = field(factory=dict, init=False)
    _best_limit: float = field(default=-1.0, init=False)

    @_around.default
    def _weighed_boundaries(self) -> tuple[Array, Array]:
        return weighed_boundaries(self.times, self.weights)

    @_reach.default
    def _group_ends(self) -> list[list[int]]:
        """By level, for each slot the last one it reaches without crossing a boundary above that level."""
        result = []
        for level in range(len(self.times)):
            ends = [len(self.steps)]
            for place in range(len(self.steps) - 1, -1, -1):
                ends.append(ends[-1] if self.steps[place] <= level else place)
            result.append(ends[::-1])
        return result

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.in_flight)

    @property
    def window(self) -> int:
        """Slots any one stage can choose from."""
        return len(self.steps) + 2 - self.stages

    def _fastest(self, stage: int, sync_limit: float) -> Fastest:
        """Fastest choices of the stage, remembered from one run to the next while the limit stays."""
        if self._best_limit != sync_limit:
            self._best.clear()
            self._costs.clear()
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
        key = (id(best), level_out, level_in)
        if key in self._costs:
            return self._costs[key][1]
        cells, (behind, front) = band.filled(self.tables.pairs.spread(best.cost)), self._around
        first, last = band.first, band.first + band.heads - 1
        cells += band.below(band.padded(behind[level_out]), first, last)
        cells += front[level_in, first : last + 1]
        if sum(each.nbytes for _, each in self._costs.values()) + cells.nbytes <= REMEMBERED_BYTES:
            self._costs[key] = best, cells
        return cells

    def run(self, time_limit: float, sync_limit: float) -> Partition | None:
        """A partition and placement with the least sum of stage times, or None when none keeps the limits.

        Args:
            time_limit: most seconds any stage may take per micro-batch.
            sync_limit: most seconds any stage may synchronise per batch.
        """
        if self.window == 1 and self.tables.in_line:
            every = [self._fastest(stage, sync_limit) for stage in range(1, self.stages + 1)]
            if all(best.settled for best in every):
                return self._in_line(every, time_limit)
        entries: list[Array] = []
        futures: list[Array] = []
        for stage in range(1, self.stages + 1):
            futures.append(self._future(entries[-1], stage) if entries else self._end())
            entries.append(self._entries(futures[-1], stage, time_limit, sync_limit))
            if not numpy.isfinite(entries[-1]).any():
                return None
        if not numpy.isfinite(entries[-1][:, 0, -1].min()):
            return None
        return self._recover(entries, futures, time_limit, sync_limit)

    def _in_line(self, every: Sequence[Fastest], time_limit: float) -> Partition | None:
        """As `run`, where each stage has one slot and costs what these choices do, counted from the last."""
        from nest.solve.dp.line import Line

        line, pairs = Line.of(self.tables, self.stages, time_limit), self.tables.pairs
        if line is None:
            return None
        self.meter.count(line.states)
        steps = [0, *self.steps[::-1].tolist(), 0]
        costs = [self._between(best, line.band, *levels) for best, levels in zip(every, pairwise(steps), strict=True)]
        rests = line.least(costs, time_limit)
        if len(rests) <= self.stages or not numpy.isfinite(rests[-1][-1]):
            return None
        larger, stages = pairs.count - 1, []
        for slot, (best, cost, rest) in enumerate(zip(every[::-1], costs[::-1], rests[-2::-1], strict=True)):
            smaller, least = line.smaller(cost, rest, larger, time_limit)
            kind = pairs.class_of(line.band.pair(larger, smaller))
            figures = int(best.choice[kind]), least, least, float(best.sync[kind])
            stages.append(PlacedStage(larger, smaller, slot, *figures))
            larger = smaller
        return Partition(tuple(stages))

    def _end(self) -> Array:
        """What follows the last stage: nothing, at no cost."""
        after = numpy.full((self.window, len(self.times), self.tables.pairs.count), numpy.inf)
        after[:, 0, 0] = 0.0
        return after

    def _followers(self, place: int, level: int, stage: int) -> range:
        """Window positions of stage `stage - 1` whose boundary with a block of `stage` in slot `place` is `level`."""
        first = max(place, self._reach[level - 1][place] if level else place) + 1
        start = self.stages - stage + 1
        return range(max(first - start, 0), min(self._reach[level][place] + 1 - start, self.window))

    def _future(self, entries: Array, stage: int) -> Array:
        """Least cost of what follows `stage`, by its window position, level of the boundary behind it, downset."""
        future = numpy.full(entries.shape, numpy.inf)
        for position in range(self.window):
            for level in range(len(self.times)):
                followers = self._followers(position + self.stages - stage, level, stage)
                if len(followers):
                    future[position, level] = entries[followers.start : followers.stop, level].min(axis=0)
        return future

    def _entries(self, future: Array, stage: int, time_limit: float, sync_limit: float) -> Array:
        """Least cost of `stage` and all after it, by its window position, level in front of it, downset."""
        entries = numpy.full(future.shape, numpy.inf)
        rows = self.tables.window(stage - 1, self.stages - stage, time_limit)
        if not len(rows):
            return entries
        best, band = self._fastest(stage, sync_limit), self.tables.pairs.band
        if band is None or not best.settled:
            least = self._gathered(best, rows, time_limit)
        else:
            least = self._windowed(best, band, rows, time_limit)
        # What follows decides an entry: of slots with the same future, one is worked out for all.
        alike: dict[bytes, list[int]] = {}
        for position in range(self.window):
            alike.setdefault(future[position].tobytes() if self.window > 1 else b"", []).append(position)
        for positions in alike.values():
            position = positions[0]
            levels_in = sorted({level for each in positions for level in self._levels_in_front(each, stage)})
            for level_out, after in enumerate(future[position]):
                if numpy.isfinite(after).any():
                    least(entries[position], after, level_out, levels_in)
            entries[positions] = entries[position]
        return entries

    def _gathered(self, best: Fastest, rows: Rows, time_limit: float) -> Lower:
        """Lowers entries from what follows, stage by stage."""
        pairs, (behind, front) = self.tables.pairs, self._around
        stage_cost = pairs.spread(best.cost, rows.pairs)
        larger, smaller = pairs.larger[rows.pairs], pairs.smaller[rows.pairs]

        def lower(entries: Array, after: Array, level_out: int, levels_in: Sequence[int]) -> None:
            rest = after.take(smaller)
            if not numpy.isfinite(rest).any():
                return
            part = stage_cost + behind[level_out].take(smaller)
            for level_in in levels_in:
                cost = part + front[level_in].take(larger)
                # The cheapest choice does: what a stage chooses changes nothing for the others.
                best.settle(cost, rows.pairs, level_out, level_in, time_limit)
                rows.lower(entries[level_in], cost + rest)
                self.meter.count(len(rows))

        return lower

    def _windowed(self, best: Fastest, band: Band, rows: Rows, time_limit: float) -> Lower:
        """The same where stages lie in a band and boundaries only add to what they cost."""
        first, last = int(rows.heads[0]), int(rows.heads[-1])

        def lower(entries: Array, after: Array, level_out: int, levels_in: Sequence[int]) -> None:
            rest = band.below(band.padded(after), first, last)
            for level_in in levels_in:
                cost = band.columns(self._between(best, band, level_out, level_in), first, last)
                # The cheapest choice does: what a stage chooses changes nothing for the others.
                least = numpy.where(cost > time_limit, numpy.inf, cost + rest).min(axis=0)
                into = entries[level_in, first : last + 1]
                numpy.minimum(into, least, out=into)
                self.meter.count(len(rows))

        return lower

    def _levels_in_front(self, position: int, stage: int) -> list[int]:
        """Levels that the boundary in front of `stage` can have; level 0 stands for none in front of the first."""
        if stage == self.stages:
            return [0]
        # The block in front lies in one of these slots, and the largest step on the way is the level.
        place, first = position + self.stages - stage, self.stages - stage - 1
        levels: list[int] = distinct(numpy.maximum.accumulate(self.steps[first:place][::-1])).tolist()
        return levels

    def _recover(self, entries: list[Array], futures: list[Array], time_limit: float, sync_limit: float) -> Partition:
        """The stages behind the least entry; among equals the first slot, lowest level, smallest rest."""
        position = int(entries[-1][:, 0, -1].argmin())
        larger, level_in = self.tables.pairs.count - 1, 0
        stages = []
        for stage in range(self.stages, 0, -1):
            place, best = position + self.stages - stage, self._fastest(stage, sync_limit)
            future, front = futures[stage - 1][position], (larger, level_in)
            pairs, around = self.tables.pairs, self._around
            _, level_out, placed = cheapest_stage(pairs, best, *around, front, future, time_limit, place)
            stages.append(placed)
            smaller = placed.smaller
            if stage > 1:
                followers = self._followers(place, level_out, stage)
                following = entries[stage - 2][followers.start : followers.stop, level_out, smaller]
                position = followers.start + int(following.argmin())
            larger, level_in = smaller, level_out
        return Partition(tuple(stages))

    def placed_side_by_side(self, partition: Partition, boundaries: Boundaries) -> Partition:
        """The same stages and choices in slots 0, 1, ..., with the boundaries they have there."""
        stages, last, pairs = [], len(partition.stages) - 1, self.tables.pairs
        for slot, stage in enumerate(partition.stages):
            kind = pairs.class_of(pairs.place(stage.larger, stage.smaller))
            behind = [boundaries.at(int(boundaries.steps[slot]), stage.smaller)] if slot < last else []
            front = [boundaries.at(int(boundaries.steps[slot - 1]), stage.larger)] if slot > 0 else []
            table, classes = self.tables.tables[stage.choice], numpy.array([kind])
            if self.weights is None:
                time, sync = table.with_boundaries(classes, *behind, *front)
                cost = time
            else:
                time, cost, sync = table.weighed(classes, self.weights, front, behind)
            figures = float(cost[0]), float(time[0]), float(sync[0])
            stages.append(PlacedStage(stage.larger, stage.smaller, slot, stage.choice, *figures))
        return Partition(tuple(stages))
