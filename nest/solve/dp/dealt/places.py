"""Where the blocks of dealt stages lie: a recurrence over stages, slots and levels, one for each way back.

The boundaries of a stage in front and behind are crossed by each of its chunks. The last stage sends back to the first,
over the largest level between neighbouring stages, as slots are nested in groups: that level is guessed, nothing above
it is used, and it is noted whether some boundary has it.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.instance import Array
from nest.solve.dp.meter import Meter


@frozen
class Placed:
    """Stages in pipeline order with their places.

    Attributes:
        slots: of each stage.
        choices: of each stage, by index.
        times: seconds per micro-batch.
        syncs: seconds once per batch.
    """

    slots: tuple[int, ...]
    choices: tuple[int, ...]
    times: tuple[float, ...]
    syncs: tuple[float, ...]

    @property
    def largest_time(self) -> float:
        """Time of the slowest stage per micro-batch."""
        return max(self.times)

    @property
    def total_time(self) -> float:
        """Sum of stage times per micro-batch."""
        return sum(self.times)

    @property
    def largest_sync(self) -> float:
        """Longest synchronisation, once per batch."""
        return max(self.syncs)


def stage_times(base: Array, front: Array | float, behind: Array | float) -> Array:
    """Seconds of stages with their boundaries, always added up in this order."""
    return (base + front) + behind


@frozen(eq=False)
class Places:
    """Where stages may lie.

    Attributes:
        crossing: seconds that all chunks of a stage take to receive over the boundary in front of it, and the stage
            there to receive back, for each level that occurs. Shape `(levels, stages)`; in front of the first stage is
            the last one.
        steps: level, as index into `crossing`, between neighbouring slots.
        levels: the levels that occur.
        meter: counts the work.
    """

    crossing: Array
    steps: NDArray[numpy.int64]
    levels: tuple[int, ...]
    meter: Meter

    @property
    def stages(self) -> int:
        """Number of stages."""
        return int(self.crossing.shape[1])

    def around(self, slots: Sequence[int]) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64]]:
        """Levels in front of the stages in these slots and behind them, as indices. Shape `(stages,)` each."""
        levels = numpy.array([self.steps[first:second].max() for first, second in pairwise(slots)])
        front = numpy.concatenate([[levels.max()], levels])
        return front, numpy.roll(front, -1)

    def least(self, times: Array, time_limit: float) -> tuple[int, ...] | None:
        """Slots of the stages with the least sum of seconds; None when none keeps the limit.

        Args:
            times: seconds of the stages by the levels in front and behind, shape `(levels, levels, stages)`.
            time_limit: most seconds any stage may take.
        """
        best: tuple[float, tuple[int, ...]] | None = None
        for back in range(len(self.crossing)):
            found = _WayBack(self, times, time_limit, back).least()
            if found is not None and (best is None or found[0] < best[0]):
                best = found
        return None if best is None else best[1]

    def ends(self, level: int) -> NDArray[numpy.int64]:
        """For each slot the last one within reach over levels up to `level`."""
        places = numpy.arange(len(self.steps) + 1)
        stops = numpy.append(numpy.flatnonzero(self.steps > level), len(self.steps))
        found: NDArray[numpy.int64] = stops[numpy.searchsorted(stops, places)]
        return found


class _WayBack:
    """The recurrence where the last stage sends back over level `back`.

    An entry is the least sum of the times of a stage and all behind it, by the level in front of it, whether some
    boundary behind it has level `back`, and its slot.
    """

    def __init__(self, places: Places, times: Array, time_limit: float, back: int) -> None:
        self.places, self.back = places, back
        self.times = numpy.where(times <= time_limit, times, numpy.inf)[: back + 1, : back + 1]
        self.stages, self.slots = places.stages, len(places.steps) + 1
        self.ends = [numpy.arange(self.slots), *(places.ends(level) for level in range(back + 1))]

    def least(self) -> tuple[float, tuple[int, ...]] | None:
        """The sum, and the slot of each stage."""
        # The last stage: behind it is the way back, and no other boundary.
        future = numpy.full((self.back + 1, 2, self.slots), numpy.inf)
        future[self.back, 0] = 0.0
        entries = [self._entries(self.stages - 1, future)]
        futures = [future]
        for stage in range(self.stages - 2, -1, -1):
            future = self._future(entries[-1])
            futures.append(future)
            entries.append(self._entries(stage, future))
            self.places.meter.count(entries[-1].size)
        first = entries[-1][self.back, 1]
        slot = int(first.argmin())
        if not numpy.isfinite(first[slot]):
            return None
        return float(first[slot]), self._recover(entries[::-1], futures[::-1], slot)

    def _entries(self, stage: int, future: Array) -> Array:
        """Entries of a stage from what follows it, by the level behind it, the note and its slot."""
        time = self.times[:, :, stage]
        entries: Array = (time[:, :, None, None] + future[None]).min(axis=1)
        return entries

    def _future(self, entries: Array) -> Array:
        """Least cost of what follows a stage, by the level of the boundary behind it, the note and its slot."""
        future = numpy.full_like(entries, numpy.inf)
        for level, (start, reached) in self._ranges():
            later = _least_to_the_end(entries[level], self.ends[level + 1])
            found = numpy.where(reached, later[:, numpy.minimum(start, self.slots - 1)], numpy.inf)
            if level == self.back:
                future[level, 1] = found.min(axis=0)
            else:
                future[level] = found
        return future

    def _ranges(self) -> Iterator[tuple[int, tuple[NDArray[numpy.int64], NDArray[numpy.bool_]]]]:
        """For each level and slot the first slot a boundary of that level leads to, and whether there is one."""
        for level in range(self.back + 1):
            start = self.ends[level] + 1
            yield level, (start, start <= self.ends[level + 1])

    def _recover(self, entries: list[Array], futures: list[Array], slot: int) -> tuple[int, ...]:
        """The slots behind an entry of the first stage; among equals the lowest level, then the first slot."""
        level, noted = self.back, 1
        slots = []
        for stage in range(self.stages):
            slots.append(slot)
            behind = int((self.times[level, :, stage] + futures[stage][:, noted, slot]).argmin())
            if stage + 1 < self.stages:
                start, end = int(self.ends[behind][slot]) + 1, int(self.ends[behind + 1][slot])
                following = entries[stage + 1][behind, :, start : end + 1]
                if behind == self.back:
                    # The note is made here, whether or not it is made again further behind.
                    noted = int(following.min(axis=1).argmin())
                slot = start + int(following[noted].argmin())
            level = behind
        return tuple(slots)


def _least_to_the_end(values: Array, ends: NDArray[numpy.int64]) -> Array:
    """For each slot the least of `values` from it to the last of its group, which `ends` gives. Shape as `values`."""
    found = values.copy()
    places = numpy.arange(len(ends))
    step, longest = 1, int((ends - places).max())
    while step <= longest:
        inside = places[:-step] + step <= ends[:-step]
        found[:, :-step] = numpy.where(inside, numpy.minimum(found[:, :-step], found[:, step:]), found[:, :-step])
        step *= 2
    return found
