"""What a stage of several chunks takes, whatever number of units of each run it has, and bounds from that.

The times of a stage and its state depend on how many units of each run it has in all.
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
"""Where a stage's messages go: to the stage in front of it, to the one behind it, between the last and the first."""

Way = str | tuple[int, int]
"""One of these, or two stages, from 0, that do not follow each other."""


class Message(NamedTuple):
    """What a chunk receives in every micro-batch.

    Attributes:
        way: between which stages.
        arrives: whether these are activations; else gradients return.
        size: bytes.
    """

    way: Way
    arrives: bool
    size: float


def messages(homes: Sequence[int], entering: Sequence[float]) -> tuple[tuple[Message, ...], ...]:
    """What the chunks of each stage receive. Shape `(stages,)`.

    Args:
        homes: the stage of each chunk, from 0.
        entering: bytes that enter each chunk, the first excepted. Shape `(chunks - 1,)`.
    """
    stages = max(homes) + 1
    found: list[list[Message]] = [[] for _ in range(stages)]
    for size, (one, other) in zip(entering, pairwise(homes), strict=True):
        if one != other and size:
            found[one].append(Message(way(one, other, one, stages), arrives=False, size=size))
            found[other].append(Message(way(one, other, other, stages), arrives=True, size=size))
    return tuple(tuple(each) for each in found)


def way(one: int, other: int, stage: int, stages: int) -> Way:
    """How a stage calls what lies between two stages, of which it is one."""
    first, second = min(one, other), max(one, other)
    if second == first + 1:
        return FRONT if stage == second else BEHIND
    return BACK if (first, second) == (0, stages - 1) else (first, second)


@frozen(eq=False, repr=False)
class PatternStages:
    """What a pattern gives to stages, whatever that costs.

    Attributes:
        distinct: what falls to each of those that differ in what they hold and receive.
        received: what they receive.
        fixed: units of each run that they hold at least.
        most: units of each run that they may hold beyond those.
        kinds: which of these each stage is, in pipeline order.
        held: what the chunks of each stage hold.
        stashed: bytes of each chunk's inputs, of each stage.
        alike: a number for each stage, the same for those that are alike in all of this.
    """

    distinct: list[Share]
    received: list[tuple[Message, ...]]
    fixed: list[Counts]
    most: list[Counts]
    kinds: list[int]
    held: tuple[Held, ...]
    stashed: list[tuple[float, ...]]
    alike: list[int]

    @classmethod
    def of(
        cls, pattern: Pattern, homes: Sequence[int], crossing: Sequence[float], moments: Sequence[tuple[Moment, ...]]
    ) -> PatternStages:
        """Those of a pattern.

        Args:
            pattern: of the chunks.
            homes: the stage of each chunk, from 0.
            crossing: bytes that enter each chunk, the first excepted. Shape `(chunks - 1,)`.
            moments: what the chunks of each stage hold when they may be the fullest.
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


Levels = Mapping[Way, int]
"""Which of the levels that occur, by index, each of a stage's ways crosses."""


@define(eq=False, repr=False, slots=False)
class StagePrices:
    """What a stage of a pattern takes, by what it holds beyond what is fixed; stages that take the same share it.

    Attributes:
        further: units of each run beyond those fixed. Shape `(points, runs)`.
        table: what choices cost it, arrays of shape `(choices, points)`.
        messages: what it receives.
        sent: seconds of messages by their size, over each of the levels that occur between stages.
        numbers: which levels of the cluster these are.
        weights: what the schedule weighs apart; None: the sum is that of the stages' times.
        laid: by which points are told apart where some choices recompute first blocks; None: none do.
        counts: `further` as an array.
    """

    further: tuple[Counts, ...]
    table: ChoiceTable
    messages: tuple[Message, ...]
    sent: Mapping[float, Sequence[float]]
    numbers: tuple[int, ...]
    weights: Weights | None
    laid: Laid | None
    counts: NDArray[numpy.int64] = field(init=False)

    @counts.default
    def _as_array(self) -> NDArray[numpy.int64]:
        return numpy.array(self.further, dtype=numpy.int64)

    def crossed(self, levels: Levels | None) -> tuple[int, ...] | None:
        """The level that each message crosses; None: each is at its cheapest."""
        return None if levels is None else tuple([levels[each.way] for each in self.messages])

    @remembered
    def at(self, crossed: tuple[int, ...] | None) -> tuple[Array, Array, Array]:
        """Seconds per micro-batch, what is added up of them, and seconds per batch. Shape `(choices, points)` each."""
        front, behind = self._boundaries(crossed, arrives=True), self._boundaries(crossed, arrives=False)
        if self.weights is not None:
            return self.table.weighed(..., self.weights, front, behind)
        time, sync = self.table.with_boundaries(..., *front, *behind)
        return time, time, sync

    def ranked(self, crossed: tuple[int, ...] | None) -> tuple[NDArray[numpy.int64], Array, Array, Array]:
        """The choices of each point in order, and what `at` has of them in that order.

        The cheapest come first, of equals those that take least time, then those that synchronise fastest, then the
        preferred ones.
        """
        time, cost, sync = self.at(crossed)
        order, points = numpy.lexsort((sync, time, cost), axis=0), numpy.arange(time.shape[1])
        return order, time[order, points], cost[order, points], sync[order, points]

    def _boundaries(self, crossed: tuple[int, ...] | None, *, arrives: bool) -> list[Boundary]:
        """Seconds of messages by the level they cross."""
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
    """A stage of a pattern; those that take the same, with as much room, are one object.

    Attributes:
        prices: what it takes.
        memory: bytes with each choice, the reserve included. Shape `(choices, points)`.
        fits: whether devices have them.
    """

    prices: StagePrices
    memory: Array
    fits: NDArray[numpy.bool_]

    def best(
        self, crossed: tuple[int, ...] | None, limits: tuple[float, float, float]
    ) -> tuple[Array, NDArray[numpy.int64]]:
        """Least cost within limits, infinite where there is none, and the choice. Shape `(points,)` each.

        Of equal choices the first as `StagePrices.ranked` has them. `limits` are the most seconds per micro-batch and
        per batch, and the most bytes; `crossed` as `StagePrices` has it.
        """
        order, time, cost, sync = self.prices.ranked(crossed)
        points = numpy.arange(self.memory.shape[1])
        within = (time <= limits[0]) & (sync <= limits[1]) & (self.memory[order, points] <= limits[2])
        first = within.argmax(axis=0)
        least = numpy.where(within[first, points], cost[first, points], numpy.inf)
        return least, order[first, points]

    def only(self, some: NDArray[numpy.bool_]) -> ChunkStage:
        """The same with some of the choices."""
        return ChunkStage(self.prices, numpy.where(some[:, None], self.memory, inf), self.fits & some[:, None])

    def figures(self, crossed: tuple[int, ...] | None, choice: int, point: int) -> tuple[float, float, float]:
        """Cost, seconds per micro-batch and seconds per batch of one choice and point."""
        time, cost, sync = self.prices.at(crossed)
        return float(cost[choice, point]), float(time[choice, point]), float(sync[choice, point])


@frozen(eq=False, repr=False)
class Contents:
    """What stages may hold.

    Attributes:
        places: which of `sets` each set of layers is, by bitmask.
        sets: the stages between each set and the empty one.
    """

    places: dict[int, int]
    sets: Downsets


Taken = tuple[Array, Array, Array]
"""What a stage takes and synchronises at least, and what it computes of further units, seconds. Shape `(points,)`."""


@frozen(eq=False, repr=False)
class StageCosts:
    """What stages of the patterns of a configuration with so many stages may choose and cost, whatever they hold.

    Attributes:
        contents: what they may hold.
        choices: of a stage: whole modes, then first blocks of each pair of modes.
        capacity: bytes a stage may use, rounding allowed for.
        unchosen: what they cost whatever they choose.
        table: what they cost with each choice of a whole mode; None: there is none.
        parts: ZeRO stages with what recomputes first blocks of chunks, in the order of choices.
        layouts: how what falls to a stage may be laid into its chunks.
        objective: weights of the schedule.
        weights: what it weighs apart; None: nothing.
        levels: those that occur between stages.
        heads: the first none, one, two, ... units of each run as bitmasks.
        seconds: per micro-batch that a unit of each run computes.
        worth: what that is in the sum of stages.
        rows: which choices have each whole recompute mode.
        more: of each mode what `ChunkCosts.more` has.
    """

    contents: Contents
    choices: tuple[Choice, ...]
    capacity: float
    unchosen: Unchosen
    table: ChoiceTable | None
    parts: tuple[tuple[int, ModePair], ...]
    layouts: Callable[[Share, int], list[Layout]]
    objective: Objective
    weights: Weights | None
    levels: tuple[int, ...]
    heads: list[tuple[int, ...]]
    seconds: tuple[float, ...]
    worth: Array
    rows: dict[str, list[int]]
    more: dict[str, tuple[tuple[float, ...], bool]]
    _known: dict[Hashable, Any] = field(factory=dict, init=False)

    def at(self, columns: NDArray[numpy.int64], laid: Laid | None) -> ChoiceTable:
        """What stages cost, by which of the contents they hold and how that is laid into chunks."""
        tables = [] if self.table is None else [self.table.of_classes(columns)]
        if laid is None:
            return tables[0]
        own = self.unchosen.of_stages(columns)
        modes = {pair: pair.arrays(laid) for pair in dict.fromkeys(pair for _, pair in self.parts)}
        return joined([*tables, *(own.table(zero, modes[pair]) for zero, pair in self.parts)], len(columns))

    def rows_of_parts(self) -> Iterator[tuple[ModePair, slice]]:
        """What recomputes first blocks, each with its choices."""
        end = sum(map(len, self.rows.values()))
        for _, pair in self.parts:
            begin, end = end, end + len(pair.numbers)
            yield pair, slice(begin, end)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """`make()`, kept: patterns differ in few stages."""
        return once(self._known, key, make)

    def least_of(
        self, prices: StagePrices, fits: NDArray[numpy.bool_] | None = None, crossed: tuple[int, ...] | None = None
    ) -> tuple[Taken, float]:
        """What a stage takes and synchronises at least, by point, and its least cost beyond what units are worth.

        With either comes what it computes of these units. Of its choices those that fit count; None: all do. `crossed`
        is as `StagePrices` has it.
        """

        def made() -> tuple[Taken, float]:
            where: Any = True if fits is None else fits
            time, cost, sync = (numpy.minimum.reduce(each, where=where, initial=inf) for each in prices.at(crossed))
            added, worth = prices.counts @ numpy.array(self.seconds), prices.counts @ self.worth
            return (time, sync, added), float(numpy.minimum.reduce(cost - worth))

        return self.once(("least", prices, None if fits is None else fits.tobytes(), crossed), made)


def least_largest(stages: Sequence[tuple[Array, Array, int]], needed: float) -> float:
    """The least limit on all stages that leaves room for `needed`; infinite where none does.

    `stages` have for each point what it takes and what it adds, and how many there are.
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


def floor_of(
    costs: StageCosts,
    slack: Counts,
    every: Sequence[tuple[Taken, float]],
    places: Sequence[int],
) -> Floor:
    """Bounds of the three terms.

    Args:
        costs: of stages.
        slack: units of each run that are not fixed.
        every: stages, as `StageCosts.least_of` has them.
        places: which of these each stage is.
    """
    total = float(slack @ costs.worth) + sum([every[place][1] for place in places])
    needed = float(slack @ numpy.array(costs.seconds)) * (1 - LIMIT_SLACK)
    counted = [(taken, places.count(place)) for place, (taken, _) in enumerate(every)]
    times = [(time, added, number) for (time, _, added), number in counted]
    syncs = [(sync, added, number) for (_, sync, added), number in counted]
    return Floor(least_largest(times, needed), total, least_largest(syncs, needed))
