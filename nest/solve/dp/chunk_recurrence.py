"""The recurrence over stages of several chunks: how many units each holds, what it chooses and where it lies.

An entry is the least sum of a stage and all behind it, by the level of the boundary in front, by whether some boundary
behind has the level of the way back from the last stage to the first, by the units that are left for it and for those
behind it, and by its slot. As each stage has a slot of its own, the others leave it few to choose from: one where there
are as many slots as stages.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import product
from math import prod

import numpy
from attrs import define, field, frozen
from numpy.typing import NDArray

from nest.instance import Array
from nest.reuse import remembered
from nest.solve.dp.chunk_stages import BACK, BEHIND, FRONT, ChunkStage, Counts, Levels, StagePrices, Way
from nest.solve.dp.pareto import Partition, PlacedStage
from nest.solve.search import Meter

MOST_AT_ONCE = 2**16
"""Entries up to which what all points of a stage make of them is worked out in one go."""

Crossed = tuple[int, ...] | None
"""The level that each of a stage's messages crosses; None: each is at its cheapest."""


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


@define(eq=False, repr=False, slots=False)
class ChunkRecurrence:
    """The recurrence for the stages of a pattern.

    Attributes:
        stages: in pipeline order.
        slack: units of each run that are not fixed.
        places: where stages may lie.
        back: whether the last stage and the first send each other anything, as neighbours do not.
        room: bytes a stage may use.
        meter: counts the work.
        runs: those whose units are not all fixed.
    """

    stages: Sequence[ChunkStage]
    slack: Counts
    places: Places
    back: bool
    room: float
    meter: Meter
    runs: list[int] = field(init=False)

    @runs.default
    def _runs_left_open(self) -> list[int]:
        # Arrays have an axis for each; of an even split there are none, and as many runs as chunks.
        return [run for run, left in enumerate(self.slack) if left]

    @cached_property
    def state(self) -> tuple[int, ...]:
        """How many numbers of units there are of each run whose units are not all fixed."""
        return tuple([self.slack[run] + 1 for run in self.runs])

    @cached_property
    def strides(self) -> NDArray[numpy.int64]:
        """What a unit of each such run adds to the number of a state."""
        return _strides(self.state)

    @cached_property
    def _ends(self) -> list[NDArray[numpy.int64]]:
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
        least, best = numpy.inf, None
        for back in self._levels_back():
            found = _WithWayBack(self, limits, back, evenly=evenly)
            if found.least < least:
                least, best = found.least, found
        return None if best is None else best.partition()

    def _levels_back(self) -> Sequence[int | None]:
        """The levels that the way from the last stage back to the first may have; None where nothing takes it."""
        if not self.back:
            return (None,)
        if self.places.slots > len(self.stages):
            # Over lower levels none reaches as many slots.
            reach = [int((ends - self._ends[0]).max()) + 1 for ends in self._ends[1:]]
            return [level for level, slots in enumerate(reach) if slots >= len(self.stages)]
        return (int(self.places.steps.max()),)

    def further(self, stage: int) -> NDArray[numpy.int64]:
        """Units that the points of a stage have of each run whose units are not all fixed. Shape `(points, runs)`."""
        return self._further_of(self.stages[stage].prices)

    @remembered
    def _further_of(self, prices: StagePrices) -> NDArray[numpy.int64]:
        further: NDArray[numpy.int64] = prices.counts[:, self.runs]
        return further

    def crossed(self, stage: int, front: int, behind: int, back: int | None) -> Crossed:
        """The levels that a stage's messages cross, by those of its ways."""
        if self.places.ways is None:
            return None
        levels: Levels = {FRONT: front, BEHIND: behind, **({} if back is None else {BACK: back})}
        return self.stages[stage].prices.crossed({**levels, **self.places.ways})

    def crossings(self) -> list[Crossed]:
        """The same of each stage, where each has a slot of its own."""
        steps, back = [0, *self.places.steps.tolist(), 0], self._levels_back()[0]
        return [self.crossed(stage, steps[stage], steps[stage + 1], back) for stage in range(len(self.stages))]

    def levels_behind(self, stage: int) -> list[int]:
        """The levels that the boundary between a stage and the next may have."""
        if self.places.slots == len(self.stages):
            return [int(self.places.steps[stage])]
        return [level for level in range(self.places.levels) if self.followers(stage, level).reached.any()]

    @remembered
    def followers(self, stage: int, level: int) -> "_Followers":
        """Where the next stage may lie over a boundary of a level."""
        window, behind = self.places.window(len(self.stages)), stage + 1
        own = slice(stage, stage + window)
        # A boundary of the level leads from behind its group of the level below to the end of that of the level.
        first = self._ends[level][own] + 1 - behind
        last = numpy.minimum(self._ends[level + 1][own] - behind, window - 1)
        ends = self._ends[level + 1][behind : behind + window]
        ends = numpy.minimum(ends - behind, window - 1)
        return _Followers(first, last, first <= last, ends)


@frozen(eq=False, repr=False)
class _Followers:
    """Where a stage may lie behind another over a boundary of some level.

    By the place of the one in front, counted from the first slot that it may have. Shape `(window,)` each.

    Attributes:
        first: from this place.
        last: to this one.
        reached: whether anywhere.
        ends: the last place, of those of the stage behind, of the group of the level that a place of it is in.
    """

    first: NDArray[numpy.int64]
    last: NDArray[numpy.int64]
    reached: NDArray[numpy.bool_]
    ends: NDArray[numpy.int64]


_Possible = tuple[NDArray[numpy.int64], Array, NDArray[numpy.int64]]
"""Some points of a stage, by number, what they cost, and with which choice."""


class _WithWayBack:
    """The recurrence where the last stage sends back over level `back`; None: it sends nothing back.

    Attributes:
        least: the sum; infinite where no stages keep the limits.
    """

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
        self.last = len(recurrence.stages) - 1
        self.window = recurrence.places.window(len(recurrence.stages))
        # The levels that the boundary behind each stage may have, and that in front of the first; 0 stands for none.
        self.behind: list[Sequence[int]] = [
            *([level for level in recurrence.levels_behind(stage) if level <= self.most] for stage in range(self.last)),
            (0,),
            (0,),
        ]
        # With a slot for each stage the way back crosses its level anyhow: there is nothing to note.
        self.noted = 1 if back is None or self.window == 1 else 2
        self.states = prod(recurrence.state)
        self._known: dict[tuple[ChunkStage, Crossed], _Possible] = {}
        self.entries: list[Array] = []
        self.futures: list[Array] = []
        self.least = self._solved()

    def _solved(self) -> float:
        # Behind all states one that no plan has, for what takes more units than there are.
        future = numpy.full((1, self.noted, self.states + 1, self.window), numpy.inf)
        future[0, 0, 0] = 0.0
        done = 0
        for stage in range(self.last, -1, -1):
            if stage < self.last:
                future = self._future(self.entries[-1], stage)
            entries = self._entries(stage, future)
            self.futures.append(future)
            self.entries.append(entries)
            done += entries[:, :, 1:].size * max(len(self.of.stages[stage].prices.further), 1)
            possible = bool((entries < numpy.inf).any())
            if done >= MOST_AT_ONCE or not possible or not stage:
                self.of.meter.count(done)
                done = 0
            if not possible:
                return numpy.inf
        return float(self.entries[-1][0, self.noted - 1, self.states - 1].min())

    def _possible(self, stage: int, front: int, behind: int) -> "_Possible":
        """The points of a stage that keep all limits, what each costs, and with which choice."""
        own, crossed = self.of.stages[stage], self.of.crossed(stage, front, behind, self.back)
        key = own, crossed
        if key not in self._known:
            cost, choice = own.best(crossed, self.limits)
            points = numpy.flatnonzero(cost < numpy.inf)
            cost, choice = cost[points], choice[points]
            if self.evenly:
                cost = own.prices.at(crossed)[0][choice, points] ** 2
            self._known[key] = points, cost, choice
        return self._known[key]

    def _entries(self, stage: int, future: Array) -> Array:
        """Entries of a stage from what follows it."""
        fronts, behinds = self.behind[stage - 1], self.behind[stage]
        entries = numpy.full((len(fronts), *future.shape[1:]), numpy.inf)
        most, further = max(MOST_AT_ONCE // (entries[:1].size or 1), 1), self.of.further(stage)
        into_fronts = zip(entries[:, :, :-1], fronts, strict=True)
        for (into, front), (after, behind) in product(into_fronts, zip(future, behinds, strict=True)):
            points, costs, _ = self._possible(stage, front, behind)
            for first in range(0, len(points), most):
                some = slice(first, first + most)
                reached = after.take(_left(len(points[some]), further[points[some]].tobytes(), self.of.state), axis=1)
                reached += costs[some, None, None]
                numpy.minimum(into, reached.min(axis=1), out=into)
        return entries

    def _future(self, entries: Array, stage: int) -> Array:
        """Least cost of what follows a stage, by the level of the boundary behind it, the note, units and its slot."""
        if self.window == 1:
            return entries
        future = numpy.full_like(entries, numpy.inf)
        for into, level, own in zip(future, self.behind[stage], entries, strict=True):
            places = self.of.followers(stage, level)
            later = _least_to_the_end(own, places.ends)[..., numpy.minimum(places.first, self.window - 1)]
            later = numpy.where(places.reached, later, numpy.inf)
            if level == self.back:
                into[1] = later.min(axis=0)
            else:
                into[:] = later
        return future

    def partition(self) -> Partition:
        """The stages of least sum; among equals the lowest level, the fewest units, the first slot."""
        entries, futures = self.entries[::-1], self.futures[::-1]
        front, noted, left = 0, self.noted - 1, numpy.array(self.of.state, dtype=numpy.int64) - 1
        slot = int(entries[0][0, noted, self.states - 1].argmin())
        stages = []
        for stage, own in enumerate(self.of.stages):
            found = numpy.inf, 0, 0, 0
            for place, behind in enumerate(self.behind[stage]):
                points, costs, choices = self._possible(stage, self.behind[stage - 1][front], behind)
                rest = left - self.of.further(stage)[points]
                after = numpy.where((rest >= 0).all(axis=1), rest @ self.of.strides, self.states)
                values = costs + futures[stage][place, noted, after, slot]
                if len(points) and values.min() < found[0]:
                    best = int(values.argmin())
                    found = float(values[best]), place, int(points[best]), int(choices[best])
            _, behind, point, choice = found
            level = self.behind[stage][behind]
            left = left - self.of.further(stage)[point]
            crossed = self.of.crossed(stage, self.behind[stage - 1][front], level, self.back)
            number = self.of.places.number(stage + slot)
            figures = own.figures(crossed, choice, point)
            stages.append(PlacedStage(point, 0, number, choice, *figures))
            if self.window > 1 and stage < self.last:
                places = self.of.followers(stage, level)
                start, end = int(places.first[slot]), int(places.last[slot]) + 1
                following = entries[stage + 1][behind, :, left @ self.of.strides, start:end]
                if level == self.back:
                    # The note is made here, whether or not it is made again further behind.
                    noted = int(following.min(axis=1).argmin())
                slot = start + int(following[noted].argmin())
            front = behind
        return Partition(tuple(stages))


def _strides(state: tuple[int, ...]) -> NDArray[numpy.int64]:
    """What a unit of each run adds to the number of a state."""
    return numpy.array([prod(state[run + 1 :]) for run in range(len(state))], dtype=numpy.int64)


@lru_cache(maxsize=1 << 8)
def _left(points: int, further: bytes, state: tuple[int, ...]) -> NDArray[numpy.int64]:
    """The state that is left of each where a stage takes some units, behind all states where it has not so many.

    Shape `(points, states)`.

    Args:
        points: how many things a stage may take.
        further: units that these have of each run, the bytes of an array of shape `(points, runs)`.
        state: how many numbers of units of each run there are.
    """
    states = numpy.indices(state).reshape(len(state), prod(state))
    left = states - numpy.frombuffer(further, dtype=numpy.int64).reshape(points, len(state), 1)
    places: NDArray[numpy.int64] = numpy.where((left >= 0).all(axis=1), _strides(state) @ left, prod(state))
    return places


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
