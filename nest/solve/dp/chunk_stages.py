"""Times of a stage of several chunks, for any number of units of each run, and bounds from them.

The times of a stage and its state depend on its total units of each run.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple, TypeVar

import numpy
from attrs import define, field, frozen
from numpy.typing import NDArray

from nest.instance import Array, Weights
from nest.instance.schedule import Moment
from nest.reuse import once, remembered
from nest.solve.dp.choices import UNKNOWN, Boundary, Choice, ChoiceTable
from nest.solve.dp.chunk_memory import Counts, Held, Share, chunks_of_stages
from nest.solve.dp.chunk_parts import Laid, Layout, ModePair, joined
from nest.solve.dp.downsets import Downsets
from nest.solve.dp.pareto import Floor, Objective
from nest.solve.dp.stage_times import Unchosen
from nest.solve.dp.units import Pattern
from nest.tolerances import LIMIT_SLACK

T = TypeVar("T")

FRONT, BEHIND, BACK = "front", "behind", "back"
"""Directions of a stage's messages: to the stage before, the stage behind, and between the last and the first."""

Way = str | tuple[int, int]  # One of these, or two stages, from 0, that are not neighbours.


class Message(NamedTuple):
    """A message that a chunk receives in every micro-batch."""

    way: Way
    arrives: bool  # Activations; else gradients.
    size: float  # Bytes.


def messages(homes: Sequence[int], entering: Sequence[float]) -> tuple[tuple[Message, ...], ...]:
    """Messages that the chunks of each stage receive. Shape `(stages,)`.

    Args:
        homes: stage of each chunk, from 0.
        entering: bytes that enter each chunk but the first. Shape `(chunks - 1,)`.
    """
    stages = max(homes) + 1
    found: list[list[Message]] = [[] for _ in range(stages)]
    for size, (one, other) in zip(entering, pairwise(homes), strict=True):
        if one != other and size:
            found[one].append(Message(way(one, other, one, stages), arrives=False, size=size))
            found[other].append(Message(way(one, other, other, stages), arrives=True, size=size))
    return tuple(tuple(each) for each in found)


def way(one: int, other: int, stage: int, stages: int) -> Way:
    """Name of the way between two stages from the view of one of them."""
    first, second = min(one, other), max(one, other)
    if second == first + 1:
        return FRONT if stage == second else BEHIND
    return BACK if (first, second) == (0, stages - 1) else (first, second)


@frozen(eq=False, repr=False)
class PatternStages:
    """Contents that a pattern gives to stages."""

    distinct: list[Share]  # Shares of stages that differ in contents or messages.
    received: list[tuple[Message, ...]]  # Messages.
    fixed: list[Counts]  # Least units of each run.
    most: list[Counts]  # Further units of each run that they may hold.
    kinds: list[int]  # Index of each stage, in pipeline order.
    held: tuple[Held, ...]  # Micro-batches of each stage's chunks.
    stashed: list[tuple[float, ...]]  # Bytes of each chunk's inputs, by stage.
    alike: list[int]  # A number for each stage, equal for equal stages.

    @classmethod
    def of(
        cls, pattern: Pattern, homes: Sequence[int], crossing: Sequence[float], moments: Sequence[tuple[Moment, ...]]
    ) -> PatternStages:
        """Stages of a pattern.

        Args:
            homes: stage of each chunk, from 0.
            crossing: bytes that enter each chunk but the first. Shape `(chunks - 1,)`.
            moments: micro-batches of each stage's chunks at the possibly fullest moments.
        """
        chunks, entering, slack = chunks_of_stages(homes), (0.0, *crossing), pattern.slack
        shares = [Share.of(pattern, mine) for mine in chunks]
        keys = list(zip(shares, messages(homes, crossing), strict=True))
        distinct = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        kinds = [distinct[key] for key in keys]
        stashed = [tuple(entering[chunk] for chunk in mine) for mine in chunks]
        every = list(zip(kinds, moments, stashed, strict=True))
        numbers = {each: number for number, each in enumerate(dict.fromkeys(every))}
        return cls(
            [share for share, _ in distinct],
            [received for _, received in distinct],
            [tuple(map(sum, zip(*share.fixed, strict=True))) for share, _ in distinct],
            [share.most(slack) for share, _ in distinct],
            kinds,
            tuple(Held(each, share) for each, share in zip(moments, shares, strict=True)),
            stashed,
            [numbers[each] for each in every],
        )


Levels = Mapping[Way, int]  # Level of each of a stage's ways, as an index of the occurring ones.


@define(eq=False, repr=False, slots=False)
class StagePrices:
    """Times of a stage of a pattern by its free units; shared by equal stages."""

    further: tuple[Counts, ...]  # Units of each run beyond the fixed ones. Shape `(points, runs)`.
    table: ChoiceTable  # Costs, with arrays of shape `(choices, points)`.
    messages: tuple[Message, ...]  # Received.
    sent: Mapping[float, Sequence[float]]  # Seconds of messages by size, over each level that occurs between stages.
    numbers: tuple[int, ...]  # These levels' numbers in the cluster.
    weights: Weights | None  # Separate weights of the schedule; None: the sum of the stages' times.
    laid: Laid | None  # Layouts of points if some choices recompute first blocks; else None.
    counts: NDArray[numpy.int64] = field(init=False)  # `further` as an array.

    @counts.default
    def _as_array(self) -> NDArray[numpy.int64]:
        return numpy.array(self.further, dtype=numpy.int64)

    def crossed(self, levels: Levels | None) -> tuple[int, ...] | None:
        """Level of each message; None: the cheapest."""
        return None if levels is None else tuple([levels[each.way] for each in self.messages])

    @remembered
    def at(self, crossed: tuple[int, ...] | None) -> tuple[Array, Array, Array]:
        """Seconds per micro-batch, summands, and seconds per batch. Shape `(choices, points)` each."""
        front, behind = self._boundaries(crossed, arrives=True), self._boundaries(crossed, arrives=False)
        if self.weights is not None:
            return self.table.weighed(..., self.weights, front, behind)
        time, sync = self.table.with_boundaries(..., *front, *behind)
        return time, time, sync

    def ranked(self, crossed: tuple[int, ...] | None) -> tuple[NDArray[numpy.int64], Array, Array, Array]:
        """Choices of each point in order, and `at` in that order.

        The cheapest come first; ties go by time, then synchronisation, then preference.
        """
        time, cost, sync = self.at(crossed)
        order, points = numpy.lexsort((sync, time, cost), axis=0), numpy.arange(time.shape[1])
        return order, time[order, points], cost[order, points], sync[order, points]

    def _boundaries(self, crossed: tuple[int, ...] | None, *, arrives: bool) -> list[Boundary]:
        seconds: dict[int, float] = {}
        for index, message in enumerate(self.messages):
            if message.arrives != arrives:
                continue
            taken = self.sent[message.size]
            level = UNKNOWN if crossed is None else self.numbers[crossed[index]]
            one = min(taken) if crossed is None else taken[crossed[index]]
            seconds[level] = seconds.get(level, 0.0) + one
        return [Boundary(level, each) for level, each in sorted(seconds.items())]


@frozen(eq=False, repr=False)
class ChunkStage:
    """A stage of a pattern; stages with equal times and room are one object."""

    prices: StagePrices
    memory: Array  # Bytes with each choice and the reserve. Shape `(choices, points)`.
    fits: NDArray[numpy.bool_]  # `memory` is within the capacity.

    def best(
        self, crossed: tuple[int, ...] | None, limits: tuple[float, float, float]
    ) -> tuple[Array, NDArray[numpy.int64]]:
        """Least cost within limits, infinite if there is none, and the choice. Shape `(points,)` each.

        Ties follow `StagePrices.ranked`. `limits` are the most seconds per micro-batch and per batch, and the most
        bytes.
        """
        order, time, cost, sync = self.prices.ranked(crossed)
        points = numpy.arange(self.memory.shape[1])
        within = (time <= limits[0]) & (sync <= limits[1]) & (self.memory[order, points] <= limits[2])
        first = within.argmax(axis=0)
        least = numpy.where(within[first, points], cost[first, points], numpy.inf)
        return least, order[first, points]

    def only(self, some: NDArray[numpy.bool_]) -> ChunkStage:
        """Restrict the choices."""
        return ChunkStage(self.prices, numpy.where(some[:, None], self.memory, inf), self.fits & some[:, None])

    def figures(self, crossed: tuple[int, ...] | None, choice: int, point: int) -> tuple[float, float, float]:
        """Cost, seconds per micro-batch and seconds per batch of one choice and point."""
        time, cost, sync = self.prices.at(crossed)
        return float(cost[choice, point]), float(time[choice, point]), float(sync[choice, point])


@frozen(eq=False, repr=False)
class Contents:
    """Possible contents of stages."""

    places: dict[int, int]  # Index in `sets` of each set of layers, by bitmask.
    sets: Downsets  # Stages between each set and the empty one.


Taken = tuple[Array, Array, Array]
"""Least time and synchronisation of a stage, and compute of further units, in seconds. Shape `(points,)`."""


@frozen(eq=False, repr=False)
class StageCosts:
    """Choices and costs of stages of the patterns of a configuration with so many stages, for any contents."""

    contents: Contents
    choices: tuple[Choice, ...]  # Of a stage: pure modes, then first blocks of each pair of modes.
    capacity: float  # Bytes of a stage, with slack for rounding.
    unchosen: Unchosen  # Costs independent of the choice.
    table: ChoiceTable | None  # Costs with each choice of a pure mode; None: there is none.
    # ZeRO stages with modes of first blocks of chunks, in the order of choices.
    parts: tuple[tuple[int, ModePair], ...]
    layouts: Callable[[Share, int], list[Layout]]  # Finds the layouts of a stage's share.
    objective: Objective  # Weights of the schedule.
    weights: Weights | None  # Separate weights; None: there are none.
    levels: tuple[int, ...]  # Those that occur between stages.
    heads: list[tuple[int, ...]]  # First 0, 1, 2, ... units of each run as bitmasks.
    seconds: tuple[float, ...]  # Of compute per micro-batch of a unit of each run.
    worth: Array  # Their part of the sum of stages.
    rows: dict[str, list[int]]  # Choices with each pure recompute mode.
    more: dict[str, tuple[tuple[float, ...], bool]]  # `ChunkCosts.more` of each mode.
    _known: dict[Hashable, Any] = field(factory=dict, init=False)

    def at(self, columns: NDArray[numpy.int64], laid: Laid | None) -> ChoiceTable:
        """Costs of stages by contents and layout."""
        tables = [] if self.table is None else [self.table.of_classes(columns)]
        if laid is None:
            return tables[0]
        own = self.unchosen.of_stages(columns)
        modes = {pair: pair.arrays(laid) for pair in dict.fromkeys(pair for _, pair in self.parts)}
        return joined([*tables, *(own.table(zero, modes[pair]) for zero, pair in self.parts)], len(columns))

    def rows_of_parts(self) -> Iterator[tuple[ModePair, slice]]:
        """Modes of first blocks, each with its choices."""
        end = sum(map(len, self.rows.values()))
        for _, pair in self.parts:
            begin, end = end, end + len(pair.numbers)
            yield pair, slice(begin, end)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Cache `make()`: patterns differ in few stages."""
        return once(self._known, key, make)

    def least_of(
        self, prices: StagePrices, fits: NDArray[numpy.bool_] | None = None, crossed: tuple[int, ...] | None = None
    ) -> tuple[Taken, float]:
        """Least time and synchronisation by point, and least cost beyond the worth of units.

        Both come with the compute of these units. Only choices that fit count; None: all do. `crossed` is that of
        `StagePrices`.
        """

        def made() -> tuple[Taken, float]:
            where: Any = True if fits is None else fits
            time, cost, sync = (numpy.minimum.reduce(each, where=where, initial=inf) for each in prices.at(crossed))
            added, worth = prices.counts @ numpy.array(self.seconds), prices.counts @ self.worth
            return (time, sync, added), float(numpy.minimum.reduce(cost - worth))

        return self.once(("least", prices, None if fits is None else fits.tobytes(), crossed), made)


def least_largest(stages: Sequence[tuple[Array, Array, int]], needed: float) -> float:
    """Least limit on all stages that leaves room for `needed`; infinite if there is none.

    `stages` have the time and contribution of each point, and their number.
    """
    limits = numpy.sort(numpy.concatenate([values for values, _, _ in stages]))
    room = numpy.zeros(len(limits))
    for values, added, times in stages:
        order = values.argsort()
        # Up to each limit the most that a point adds; in front of all points there is none.
        most = numpy.maximum.accumulate(numpy.concatenate([[-inf], added[order]]))
        room += times * most[values[order].searchsorted(limits, side="right")]
    enough = (room >= needed) & (limits < inf)
    first = int(enough.argmax())
    return float(limits[first]) if enough[first] else inf


def floor_of(costs: StageCosts, slack: Counts, every: Sequence[tuple[Taken, float]], places: Sequence[int]) -> Floor:
    """Bounds of the three terms.

    Args:
        slack: free units of each run.
        every: results of `StageCosts.least_of`.
        places: index of each stage in them.
    """
    total = float(slack @ costs.worth) + sum([every[place][1] for place in places])
    needed = float(slack @ numpy.array(costs.seconds)) * (1 - LIMIT_SLACK)
    counted = [(taken, places.count(place)) for place, (taken, _) in enumerate(every)]
    times = [(time, added, number) for (time, _, added), number in counted]
    syncs = [(sync, added, number) for (_, sync, added), number in counted]
    return Floor(least_largest(times, needed), total, least_largest(syncs, needed))
