"""Recurrence over stages of several chunks: units, choice and place of each.

An entry is the least sum of a stage and all behind it, by the level of the boundary before it, by whether a boundary
behind has the level of the way back from the last stage to the first, by the units left for it and those behind, and by
its slot. Each stage has its own slot, so few are left to choose from: one if there are as many slots as stages.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from math import prod

import numpy
from attrs import define, field, frozen
from numpy.typing import NDArray

from nest.instance import Array
from nest.reuse import remembered
from nest.solve.dp.chunk_memory import Counts
from nest.solve.dp.chunk_stages import BACK, BEHIND, FRONT, ChunkStage, Levels, StagePrices, Way
from nest.solve.dp.pareto import Partition, PlacedStage
from nest.solve.dp.places import Place, ReturnPlaces, SlotPlaces, graph
from nest.solve.dp.recurrence import Step, Steps, least_sums, recovered
from nest.solve.search import Meter

MOST_AT_ONCE = 2**16  # Most entries for which all points of a stage are evaluated at once.
Crossed = tuple[int, ...] | None  # Level of each of a stage's messages; None: the cheapest.


@frozen(eq=False, repr=False)
class Places:
    """Possible places of stages."""

    # Level between neighbouring slots, as an index of the occurring ones. Shape `(slots - 1,)`.
    steps: NDArray[numpy.int64]
    levels: int  # Number of levels that occur.
    # Levels of ways between stages that are not neighbours, nor last and first, if known; None: all ways are at their
    # cheapest, and slots do not matter.
    ways: Mapping[Way, int] | None
    numbers: tuple[int, ...] = ()  # Slots in a replica; empty: its first ones.

    @classmethod
    def anywhere(cls, stages: int) -> "Places":
        """Places with the cheapest boundaries everywhere."""
        return cls(numpy.zeros(stages - 1, dtype=numpy.int64), 1, None)

    @property
    def slots(self) -> int:
        """Number of slots."""
        return len(self.steps) + 1

    def number(self, slot: int) -> int:
        """Slot of a replica."""
        return self.numbers[slot] if self.numbers else slot


@define(eq=False, repr=False, slots=False)
class ChunkRecurrence:
    """Recurrence for the stages of a pattern."""

    stages: Sequence[ChunkStage]  # In pipeline order.
    slack: Counts  # Free units of each run.
    places: Places
    back: bool  # The last stage and the first exchange messages, without being neighbours.
    room: float  # Bytes of a stage.
    meter: Meter
    runs: list[int] = field(init=False)  # Those with free units.

    @runs.default
    def _runs_left_open(self) -> list[int]:
        # Arrays have an axis for each; of an even split there are none, and as many runs as chunks.
        return [run for run, left in enumerate(self.slack) if left]

    @cached_property
    def state(self) -> tuple[int, ...]:
        """Numbers of units of each run with free units."""
        return tuple([self.slack[run] + 1 for run in self.runs])

    @cached_property
    def entries(self) -> int:
        """Number of states."""
        return prod(self.state)

    @cached_property
    def slots(self) -> SlotPlaces:
        """Places of the stages, for any way back."""
        return SlotPlaces(tuple(self.places.steps.tolist()), len(self.stages))

    @cached_property
    def alone(self) -> bool:
        """True if there are as many slots as stages."""
        return self.places.slots == len(self.stages)

    def run(
        self, time_limit: float, sync_limit: float, *, room: float | None = None, evenly: bool = False
    ) -> Partition | None:
        """Stages with the least sum within limits; None: none keeps them.

        Args:
            time_limit: most seconds of a stage per micro-batch.
            sync_limit: most seconds of synchronisation per batch.
            room: most bytes of a stage; None: the available ones.
            evenly: minimise the sum of squares of times instead, with the given choices.
        """
        limits = (time_limit, sync_limit, self.room if room is None else room)
        least, best = numpy.inf, None
        for back in self._levels_back():
            way = _WithWayBack(self, limits, back, evenly)
            rests = least_sums(self.entries, 1, way.placed.surroundings, way.steps(), self.meter)
            if len(rests) > len(self.stages):
                found = min(float(rests[-1][number][-1]) for _, number in way.placed.first())
                if found < least:
                    least, best = found, (way, rests)
        return None if best is None else recovered(best[0].placed, best[1], self.entries, best[0].chosen)

    def _levels_back(self) -> Sequence[int | None]:
        """Possible levels of the way from the last stage to the first; None: nothing takes it."""
        if not self.back:
            return (None,)
        if not self.alone:
            # Over lower levels none reaches as many slots.
            reach = [max(end - slot for slot, end in enumerate(ends)) + 1 for ends in self.slots.ends]
            return [level for level, slots in enumerate(reach) if slots >= len(self.stages)]
        return (int(self.places.steps.max()),)

    def further(self, stage: int) -> NDArray[numpy.int64]:
        """Units of a stage's points for each run with free units. Shape `(points, runs)`."""
        return self._further_of(self.stages[stage].prices)

    @remembered
    def _further_of(self, prices: StagePrices) -> NDArray[numpy.int64]:
        further: NDArray[numpy.int64] = prices.counts[:, self.runs]
        return further

    def crossed(self, stage: int, front: int, behind: int, back: int | None) -> Crossed:
        """Levels of a stage's messages, from those of its ways."""
        if self.places.ways is None:
            return None
        levels: Levels = {FRONT: front, BEHIND: behind, **({} if back is None else {BACK: back})}
        return self.stages[stage].prices.crossed({**levels, **self.places.ways})

    def crossings(self) -> list[Crossed]:
        """Same for each stage, with as many slots as stages."""
        steps, back = [0, *self.places.steps.tolist(), 0], self._levels_back()[0]
        return [self.crossed(stage, steps[stage], steps[stage + 1], back) for stage in range(len(self.stages))]

    def left(self, stage: int, points: NDArray[numpy.int64]) -> NDArray[numpy.int64]:
        """Same as `_left`, for some points of a stage."""
        return _left(len(points), self.further(stage)[points].tobytes(), self.state)


class _WithWayBack:
    """Stages within limits if the last one sends back over level `back`; None: it sends nothing back."""

    def __init__(self, of: ChunkRecurrence, limits: tuple[float, float, float], back: int | None, evenly: bool) -> None:
        self.of, self.limits, self.back, self.evenly = of, limits, back, evenly
        # With a slot for each stage the way back crosses its level anyhow.
        places = of.slots if back is None or of.alone else ReturnPlaces(of.slots, back)
        self.placed = graph(places, len(of.stages))
        self._known: dict[tuple[ChunkStage, Crossed], tuple[NDArray[numpy.int64], Array, NDArray[numpy.int64]]] = {}

    def points(self, stage: int, front: int, behind: int) -> tuple[NDArray[numpy.int64], Array, NDArray[numpy.int64]]:
        """Points of a stage within all limits, the cost of each, and its choice."""
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

    def steps(self) -> Iterator[Steps]:
        """Steps of each stage, from the last on: from the units left for it and those behind."""
        for stage in reversed(range(len(self.of.stages))):
            size = self.of.entries * max(len(self.of.stages[stage].prices.further), 1)
            yield {0: [Step(partial(self._least, stage), slice(1, None), size)]}

    def _least(self, stage: int, after: Array, behind: int, front: int) -> Array:
        points, costs, _ = self.points(stage, front, behind)
        least, most = numpy.full(self.of.entries, numpy.inf), max(MOST_AT_ONCE // self.of.entries, 1)
        for first in range(0, len(points), most):
            some = slice(first, first + most)
            reached = after.take(self.of.left(stage, points[some]))
            reached += costs[some, None]
            numpy.minimum(least, reached.min(axis=0), out=least)
        return least

    def chosen(
        self, from_last: int, place: Place, larger: int, front: int, ways: dict[int, Array]
    ) -> tuple[int, int, PlacedStage]:
        """Same as `Choose`; ties go to the lowest level, then the fewest units."""
        stage, found = len(self.of.stages) - from_last, (numpy.inf, 0, 0, 0, 0)
        for behind, rest in ways.items():
            points, costs, choices = self.points(stage, front, behind)
            after = self.of.left(stage, points)[:, larger - 1]
            values = costs + rest[after]
            if len(points) and values.min() < found[0]:
                best = int(values.argmin())
                found = float(values[best]), behind, int(after[best]), int(points[best]), int(choices[best])
        _, behind, smaller, point, choice = found
        own, crossed = self.of.stages[stage], self.of.crossed(stage, front, behind, self.back)
        number = self.of.places.number(self.placed.places.at(place)[1])
        return behind, smaller, PlacedStage(point, 0, number, choice, *own.figures(crossed, choice, point))


@lru_cache(maxsize=1 << 8)
def _left(points: int, further: bytes, state: tuple[int, ...]) -> NDArray[numpy.int64]:
    """State left of each state after a stage takes some units, counted from 1; 0: too few. Shape `(points, states)`.

    Args:
        points: number of alternatives.
        further: units of each run they take, as bytes of an array of shape `(points, runs)`.
        state: numbers of units of each run.
    """
    states = numpy.indices(state).reshape(len(state), prod(state))
    left = states - numpy.frombuffer(further, dtype=numpy.int64).reshape(points, len(state), 1)
    strides = numpy.array([prod(state[run + 1 :]) for run in range(len(state))], dtype=numpy.int64)
    places: NDArray[numpy.int64] = numpy.where((left >= 0).all(axis=1), strides @ left + 1, 0)
    return places
