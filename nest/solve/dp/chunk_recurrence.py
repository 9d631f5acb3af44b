"""The recurrence over stages of several chunks: how many units each holds, what it chooses and where it lies.

An entry is the least sum of a stage and all behind it, by the level of the boundary in front, by whether some boundary
behind has the level of the way back from the last stage to the first, by the units that are left for it and for those
behind it, and by its slot. As each stage has a slot of its own, the others leave it few to choose from: one where there
are as many slots as stages.
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

    def number(self, slot: int) -> int:
        """Which slot of a replica one of these is."""
        return self.numbers[slot] if self.numbers else slot


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
    def entries(self) -> int:
        """How many states there are."""
        return prod(self.state)

    @cached_property
    def slots(self) -> SlotPlaces:
        """The places of the stages, whatever way leads back."""
        return SlotPlaces(tuple(self.places.steps.tolist()), len(self.stages))

    @cached_property
    def alone(self) -> bool:
        """Whether each stage has one slot."""
        return self.places.slots == len(self.stages)

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
            way = _WithWayBack(self, limits, back, evenly)
            rests = least_sums(self.entries, 1, way.placed.surroundings, way.steps(), self.meter)
            if len(rests) > len(self.stages):
                found = min(float(rests[-1][number][-1]) for _, number in way.placed.first())
                if found < least:
                    least, best = found, (way, rests)
        return None if best is None else recovered(best[0].placed, best[1], self.entries, best[0].chosen)

    def _levels_back(self) -> Sequence[int | None]:
        """The levels that the way from the last stage back to the first may have; None where nothing takes it."""
        if not self.back:
            return (None,)
        if not self.alone:
            # Over lower levels none reaches as many slots.
            reach = [max(end - slot for slot, end in enumerate(ends)) + 1 for ends in self.slots.ends]
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

    def left(self, stage: int, points: NDArray[numpy.int64]) -> NDArray[numpy.int64]:
        """As `_left`, of some points of a stage."""
        return _left(len(points), self.further(stage)[points].tobytes(), self.state)


class _WithWayBack:
    """What stages may be within limits where the last one sends back over level `back`; None: it sends nothing back."""

    def __init__(self, of: ChunkRecurrence, limits: tuple[float, float, float], back: int | None, evenly: bool) -> None:
        self.of, self.limits, self.back, self.evenly = of, limits, back, evenly
        # With a slot for each stage the way back crosses its level anyhow.
        places = of.slots if back is None or of.alone else ReturnPlaces(of.slots, back)
        self.placed = graph(places, len(of.stages))
        self._known: dict[tuple[ChunkStage, Crossed], tuple[NDArray[numpy.int64], Array, NDArray[numpy.int64]]] = {}

    def points(self, stage: int, front: int, behind: int) -> tuple[NDArray[numpy.int64], Array, NDArray[numpy.int64]]:
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

    def steps(self) -> Iterator[Steps]:
        """Those of each stage, from the last on: from the units that are left for it and those behind it."""
        for stage in reversed(range(len(self.of.stages))):
            size = self.of.entries * max(len(self.of.stages[stage].prices.further), 1)
            yield {0: [Step(partial(self._least, stage), slice(1, None), size)]}

    def _least(self, stage: int, after: Array, behind: int, front: int) -> Array:
        """As `Step.least`."""
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
        """As `Choose`; among equals the lowest level, the fewest units."""
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
    """The state that is left of each where a stage takes some units, from 1 on; 0 where it has not so many.

    Shape `(points, states)`.

    Args:
        points: how many things a stage may take.
        further: units that these have of each run, the bytes of an array of shape `(points, runs)`.
        state: how many numbers of units of each run there are.
    """
    states = numpy.indices(state).reshape(len(state), prod(state))
    left = states - numpy.frombuffer(further, dtype=numpy.int64).reshape(points, len(state), 1)
    strides = numpy.array([prod(state[run + 1 :]) for run in range(len(state))], dtype=numpy.int64)
    places: NDArray[numpy.int64] = numpy.where((left >= 0).all(axis=1), strides @ left + 1, 0)
    return places
