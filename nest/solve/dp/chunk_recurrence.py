"""The recurrence over stages of several chunks: how many units each holds, what it chooses and where it lies.

An entry is the least sum of a stage and all behind it, by the level of the boundary in front, by whether some boundary
behind has the level of the way back from the last stage to the first, by the units that are left for it and for those
behind it, and by its slot. As each stage has a slot of its own, the others leave it few to choose from: one where there
are as many slots as stages.
"""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy
from attrs import define, field, frozen
from numpy.typing import NDArray

from nest.instance import Array
from nest.solve.dp.chunk_stages import BACK, BEHIND, FRONT, ChunkStage, Counts, Levels, Way
from nest.solve.dp.pareto import Partition, PlacedStage
from nest.solve.search import Meter


@frozen(eq=False, repr=False)
class Places:
    """Where stages may lie.

    Attributes:
        steps: level between neighbouring slots, as an index of those that occur. Shape `(slots - 1,)`.
        levels: how many levels occur.
        ways: the levels of ways that are no neighbours' and not between the last stage and the first, where these are
            known; None: all ways are at their cheapest, and slots do not matter.
        numbers: which slots of a replica these are; none: its first ones.
    """

    steps: NDArray[numpy.int64]
    levels: int
    ways: Mapping[Way, int] | None
    numbers: tuple[int, ...] = ()

    @classmethod
    def anywhere(cls, stages: int) -> "Places":
        """As if every boundary were at its cheapest."""
        return cls(numpy.zeros(stages - 1, dtype=numpy.int64), 1, None)

    @property
    def slots(self) -> int:
        """How many slots there are."""
        return len(self.steps) + 1

    def window(self, stages: int) -> int:
        """How many slots any one of so many stages can choose from: stage `i` those from `i` on."""
        return self.slots + 1 - stages

    def number(self, slot: int) -> int:
        """Which slot of a replica one of these is."""
        return self.numbers[slot] if self.numbers else slot

    def ends(self, level: int) -> NDArray[numpy.int64]:
        """For each slot the last one within reach over levels up to `level`."""
        stops = numpy.append(numpy.flatnonzero(self.steps > level), len(self.steps))
        reached: NDArray[numpy.int64] = stops[numpy.searchsorted(stops, numpy.arange(self.slots))]
        return reached


@define(eq=False, repr=False)
class ChunkRecurrence:
    """The recurrence for the stages of a pattern.

    Attributes:
        stages: in pipeline order.
        slack: units of each run that are not fixed.
        places: where stages may lie.
        back: whether the last stage and the first send each other anything, as neighbours do not.
        room: bytes a stage may use.
        meter: counts the work.
    """

    stages: Sequence[ChunkStage]
    slack: Counts
    places: Places
    back: bool
    room: float
    meter: Meter
    _ends: list[NDArray[numpy.int64]] = field(init=False)
    _open: Counts = field(init=False)

    @_open.default
    def _runs_left_open(self) -> Counts:
        # Arrays have an axis for each; of an even split there are none, and as many runs as chunks.
        return tuple(run for run, left in enumerate(self.slack) if left)

    @_ends.default
    def _group_ends(self) -> list[NDArray[numpy.int64]]:
        every = range(self.places.levels)
        return [numpy.arange(self.places.slots), *(self.places.ends(level) for level in every)]

    def run(
        self, time_limit: float, sync_limit: float, *, room: float | None = None, evenly: bool = False
    ) -> Partition | None:
        """The stages with the least sum within limits; None when none keeps them.

        Args:
            time_limit: most seconds any stage may take per micro-batch.
            sync_limit: most seconds any stage may synchronise per batch.
            room: most bytes any stage may use; None: those there are.
            evenly: whether the sum of the squares of times is to be least instead, with the choices as they are.
        """
        limits = (time_limit, sync_limit, self.room if room is None else room)
        best: tuple[float, Partition] | None = None
        for back in range(self.places.levels) if self.back else (None,):
            found = _WithWayBack(self, limits, back, evenly=evenly).least()
            if found is not None and (best is None or found[0] < best[0]):
                best = found
        return None if best is None else best[1]

    def left_open(self, counts: Counts) -> Counts:
        """Those of `counts`, one for each run, that are of runs whose units are not all fixed."""
        return tuple(counts[run] for run in self._open)

    def levels(self, front: int, behind: int, back: int | None) -> Levels | None:
        """The levels of a stage's ways."""
        if self.places.ways is None:
            return None
        return {FRONT: front, BEHIND: behind, **({} if back is None else {BACK: back}), **self.places.ways}


class _WithWayBack:
    """The recurrence where the last stage sends back over level `back`; None: it sends nothing back."""

    def __init__(
        self,
        recurrence: ChunkRecurrence,
        limits: tuple[float, float, float],
        back: int | None,
        *,
        evenly: bool,
    ) -> None:
        self.of, self.limits, self.back, self.evenly = recurrence, limits, back, evenly
        self.most = recurrence.places.levels - 1 if back is None else back
        self.ends = recurrence._ends[: self.most + 2]
        self.last = len(recurrence.stages) - 1
        self.window = recurrence.places.window(len(recurrence.stages))
        self.slack = recurrence.left_open(recurrence.slack)

    def least(self) -> tuple[float, Partition] | None:
        """The sum, and the stages."""
        state = tuple(each + 1 for each in self.slack)
        noted = 1 if self.back is None else 2
        future = numpy.full((1, noted, *state, self.window), numpy.inf)
        future[(0, 0, *(0 for _ in state))] = 0.0
        entries: list[Array] = []
        futures: list[Array] = []
        for stage in range(self.last, -1, -1):
            if stage < self.last:
                future = self._future(entries[-1], stage)
            futures.append(future)
            entries.append(self._entries(stage, future))
            if not numpy.isfinite(entries[-1]).any():
                return None
        first = entries[-1][(0, noted - 1, *self.slack)]
        slot = int(first.argmin())
        if not numpy.isfinite(first[slot]):
            return None
        return float(first[slot]), self._recover(entries[::-1], futures[::-1], slot)

    def _ways(self, stage: int) -> tuple[Sequence[int], Sequence[int]]:
        """The levels that the boundaries of a stage in front and behind may have; 0 stands for none at the ends."""
        return self._levels_behind(stage - 1), self._levels_behind(stage)

    def _levels_behind(self, stage: int) -> Sequence[int]:
        """The levels that a boundary between a stage and the next may have."""
        if not 0 <= stage < self.last:
            return (0,)
        return [level for level in range(self.most + 1) if self._followers(stage, level)[2].any()]

    def _followers(
        self, stage: int, level: int
    ) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64], NDArray[numpy.bool_]]:
        """Where the next stage may lie over a boundary of a level: from its first place to its last, and if anywhere.

        By the place of the stage, counted from the first slot that it may have. Shape `(window,)` each.
        """
        own, behind = slice(stage, stage + self.window), stage + 1
        # A boundary of the level leads from behind its group of the level below to the end of that of the level.
        first = self.ends[level][own] + 1 - behind
        last = numpy.minimum(self.ends[level + 1][own] - behind, self.window - 1)
        return first, last, first <= last

    def _costs(self, stage: int, front: int, behind: int) -> Array:
        """What each point of a stage costs, infinite where it keeps no limit."""
        own, levels = self.of.stages[stage], self.of.levels(front, behind, self.back)
        cost, choice = own.best(levels, self.limits)
        if not self.evenly:
            return cost
        time = own.prices.at(own.prices.crossed(levels))[0][choice, numpy.arange(len(choice))]
        return numpy.where(numpy.isfinite(cost), time**2, numpy.inf)

    def _entries(self, stage: int, future: Array) -> Array:
        """Entries of a stage from what follows it."""
        fronts, behinds = self._ways(stage)
        entries = numpy.full((self.most + 1 if stage else 1, *future.shape[1:]), numpy.inf)
        every, own = slice(None), self.of.stages[stage]
        for front, behind in product(fronts, behinds):
            costs = self._costs(stage, front, behind)
            for point in numpy.flatnonzero(numpy.isfinite(costs)).tolist():
                more = self.of.left_open(own.prices.further[point])
                into = entries[front][(every, *(slice(each, None) for each in more), every)]
                left = future[behind][(every, *(slice(None, -each or None) for each in more), every)]
                numpy.minimum(into, costs[point] + left, out=into)
        self.of.meter.count(entries.size * max(len(own.prices.further), 1))
        return entries

    def _future(self, entries: Array, stage: int) -> Array:
        """Least cost of what follows a stage, by the level of the boundary behind it, the note, units and its slot."""
        future = numpy.full_like(entries, numpy.inf)
        for level in self._levels_behind(stage):
            first, _, reached = self._followers(stage, level)
            behind = stage + 1
            ends = numpy.minimum(self.ends[level + 1][behind : behind + self.window] - behind, self.window - 1)
            later = _least_to_the_end(entries[level], ends)[..., numpy.minimum(first, self.window - 1)]
            later = numpy.where(reached, later, numpy.inf)
            if level == self.back:
                future[level, 1] = later.min(axis=0)
            else:
                future[level] = later
        return future

    def _recover(self, entries: list[Array], futures: list[Array], slot: int) -> Partition:
        """The stages behind an entry of the first; among equals the lowest level, the fewest units, the first slot."""
        level, noted, left = 0, 0 if self.back is None else 1, self.slack
        stages = []
        for stage, own in enumerate(self.of.stages):
            front, found = level, None
            for behind in self._ways(stage)[1]:
                costs = self._costs(stage, front, behind)
                for point in numpy.flatnonzero(numpy.isfinite(costs)).tolist():
                    more = self.of.left_open(own.prices.further[point])
                    rest = tuple(one - other for one, other in zip(left, more, strict=True))
                    if min(rest, default=0) >= 0:
                        value = float(costs[point] + futures[stage][(behind, noted, *rest, slot)])
                        if found is None or value < found[0]:
                            found = value, behind, point, rest
            assert found is not None
            _, level, point, left = found
            levels = self.of.levels(front, level, self.back)
            choice = int(own.best(levels, self.limits)[1][point])
            figures = own.figures(levels, choice, point)
            number = self.of.places.number(stage + slot)
            stages.append(PlacedStage(int(own.prices.columns[point]), 0, number, choice, *figures))
            if stage < self.last:
                first, last, _ = self._followers(stage, level)
                start = int(first[slot])
                following = entries[stage + 1][level][(slice(None), *left, slice(start, int(last[slot]) + 1))]
                if level == self.back:
                    # The note is made here, whether or not it is made again further behind.
                    noted = int(following.min(axis=1).argmin())
                slot = start + int(following[noted].argmin())
        return Partition(tuple(stages))


def _least_to_the_end(values: Array, ends: NDArray[numpy.int64]) -> Array:
    """For each slot the least of `values` from it to the last of its group, which `ends` gives. Shape as `values`."""
    # After each round an entry is the least of twice as many slots; where fewer are left, of those.
    least = values.copy()
    places = numpy.arange(len(ends))
    step, longest = 1, int((ends - places).max())
    while step <= longest:
        inside = places[:-step] + step <= ends[:-step]
        least[..., :-step] = numpy.where(
            inside, numpy.minimum(least[..., :-step], least[..., step:]), least[..., :-step]
        )
        step *= 2
    return least
