"""What a stage of several chunks takes and holds, whatever number of units of each run it has.

The times of a stage and its state depend on how many units of each run it has in all. Its memory depends on which chunk
has them too, as chunks hold different numbers of micro-batches: units that are not fixed go where they need least.
"""

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise, product
from typing import NamedTuple

import numpy
from attrs import define, field, frozen
from numpy.typing import NDArray

from nest.instance import Array, Level, Weights
from nest.instance.schedule import Moment
from nest.solve.dp.choices import UNKNOWN, Boundary, ChoiceTable, ahead
from nest.solve.dp.units import Pattern

Counts = tuple[int, ...]
"""Units of each run."""

FRONT, BEHIND, BACK = "front", "behind", "back"
"""Where a stage's messages go: to the stage in front of it, to the one behind it, between the last and the first."""

FEW_MOMENTS, NEAR = 64, 4
"""Moments up to which lines between all others are tried, and how many on either side where there are more."""

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


Levels = Mapping[Way, int]
"""Which of the levels that occur, by index, each of a stage's ways crosses."""


@define(eq=False)
class StagePrices:
    """What a stage of a pattern takes, by what it holds beyond what is fixed; stages that take the same share it.

    Attributes:
        further: units of each run beyond those fixed. Shape `(points, runs)`.
        columns: which of the contents of stages that is. Shape `(points,)`.
        table: what choices cost it, arrays of shape `(choices, points)`.
        messages: what it receives.
        links: the levels that occur between stages.
        numbers: which levels of the cluster these are.
        weights: what the schedule weighs apart; None: the sum is that of the stages' times.
    """

    further: tuple[Counts, ...]
    columns: NDArray[numpy.int64]
    table: ChoiceTable
    messages: tuple[Message, ...]
    links: tuple[Level, ...]
    numbers: tuple[int, ...]
    weights: Weights | None
    _known: dict[Hashable, tuple[Array, Array, Array]] = field(factory=dict, init=False)

    def crossed(self, levels: Levels | None) -> tuple[int, ...] | None:
        """The level that each message crosses; None: each is at its cheapest."""
        return None if levels is None else tuple([levels[each.way] for each in self.messages])

    def at(self, crossed: tuple[int, ...] | None) -> tuple[Array, Array, Array]:
        """Seconds per micro-batch, what is added up of them, and seconds per batch. Shape `(choices, points)` each."""
        if crossed not in self._known:
            self._known[crossed] = self._priced(crossed)
        return self._known[crossed]

    def _priced(self, crossed: tuple[int, ...] | None) -> tuple[Array, Array, Array]:
        front, behind = self._boundaries(crossed, arrives=True), self._boundaries(crossed, arrives=False)
        if self.weights is not None:
            return self.table.weighed(..., self.weights, front, behind)
        time, sync = self.table.with_boundaries(..., *front, *behind)
        return time, time, sync

    def _boundaries(self, crossed: tuple[int, ...] | None, *, arrives: bool) -> list[Boundary]:
        """Seconds of messages by the level they cross."""
        seconds: dict[int, float] = {}
        for index, message in enumerate(self.messages):
            if message.arrives != arrives:
                continue
            taken = [link.latency + message.size / link.bandwidth for link in self.links]
            level = UNKNOWN if crossed is None else self.numbers[crossed[index]]
            one = min(taken) if crossed is None else taken[crossed[index]]
            seconds[level] = seconds.get(level, 0.0) + one
        return [Boundary(level, each) for level, each in sorted(seconds.items())]


@define(eq=False)
class ChunkStage:
    """A stage of a pattern; those that take the same, with as much room, are one object.

    Attributes:
        prices: what it takes.
        memory: bytes with each choice, the reserve included. Shape `(choices, points)`.
    """

    prices: StagePrices
    memory: Array
    _best: dict[Hashable, tuple[Array, NDArray[numpy.int64]]] = field(factory=dict, init=False)
    _limits: tuple[float, ...] = field(default=(), init=False)

    def best(
        self, crossed: tuple[int, ...] | None, limits: tuple[float, float, float]
    ) -> tuple[Array, NDArray[numpy.int64]]:
        """Least cost within limits, infinite where there is none, and the choice. Shape `(points,)` each.

        Of equal choices the one that takes least time, then the one that synchronises fastest, then the preferred one.
        `limits` are the most seconds per micro-batch and per batch, and the most bytes; `crossed` as `StagePrices` has
        it.
        """
        if limits != self._limits:
            self._best.clear()
            self._limits = limits
        if crossed not in self._best:
            time, cost, sync = self.prices.at(crossed)
            within = (time <= limits[0]) & (sync <= limits[1]) & (self.memory <= limits[2])
            found = numpy.full((3, self.memory.shape[1]), numpy.inf)
            choice = numpy.zeros(self.memory.shape[1], dtype=numpy.int64)
            for index, row in enumerate(within):
                if row.any():
                    figures = numpy.array([cost[index], time[index], sync[index]])
                    better = row & ahead(figures, found)
                    found[:, better] = figures[:, better]
                    choice[better] = index
            self._best[crossed] = found[0], choice
        return self._best[crossed]

    def figures(self, crossed: tuple[int, ...] | None, choice: int, point: int) -> tuple[float, float, float]:
        """Cost, seconds per micro-batch and seconds per batch of one choice and point."""
        time, cost, sync = self.prices.at(crossed)
        return float(cost[choice, point]), float(time[choice, point]), float(sync[choice, point])


@frozen(cache_hash=True)
class Share:
    """What of a pattern falls to a stage.

    Attributes:
        fixed: units of each run that each chunk holds at least. Shape `(chunks, runs)`.
        open: whether each chunk may hold more of each run. Shape `(chunks, runs)`.
    """

    fixed: tuple[Counts, ...]
    open: tuple[tuple[bool, ...], ...]

    @classmethod
    def of(cls, pattern: Pattern, chunks: Sequence[int]) -> "Share":
        """That of the stage with these chunks."""
        ranges = list(zip(pattern.slack, pattern.first, pattern.last, strict=True))
        return cls(
            tuple(pattern.fixed(chunk) for chunk in chunks),
            tuple(tuple(left > 0 and first <= chunk <= last for left, first, last in ranges) for chunk in chunks),
        )

    def most(self, slack: Counts) -> Counts:
        """Units of each run that the stage may hold beyond those fixed."""
        return tuple(left if any(row[run] for row in self.open) else 0 for run, left in enumerate(slack))

    def places(self, run: int) -> tuple[int, ...]:
        """The chunks that may hold more of a run."""
        return tuple(chunk for chunk, may in enumerate(self.open) if may[run])

    def column(self, run: int) -> Counts:
        """Units of a run that each chunk holds at least."""
        return tuple(row[run] for row in self.fixed)


@frozen(cache_hash=True)
class Held:
    """How many micro-batches the chunks of a stage hold.

    Attributes:
        moments: micro-batches of each chunk, at the moments that may be the fullest.
        share: what the chunks hold of a pattern.
    """

    moments: tuple[Moment, ...]
    share: Share

    def base(self, more: Sequence[float], stashed: Sequence[float]) -> Array:
        """Bytes of micro-batches beyond one of what is fixed, by moment.

        Args:
            more: bytes of each further micro-batch, of a unit of each run.
            stashed: bytes of each chunk's inputs, where they are kept.
        """
        own = numpy.array(self.share.fixed, dtype=numpy.float64) @ numpy.array(more) + numpy.array(stashed)
        base: Array = (numpy.array(self.moments) - 1) @ own
        return base

    def between(
        self, further: Sequence[Counts], more: Sequence[float], stashed: Sequence[float]
    ) -> tuple[Array, Array]:
        """Bytes of micro-batches beyond one that a stage needs at least and, evenly spread, at most. Shape `(points,)`.

        With one moment the former is what it needs. `further` are units of each run beyond those fixed.
        """
        base, counts = self.base(more, stashed), numpy.array(further)
        least, most = (numpy.tile(base, (len(counts), 1)) for _ in range(2))
        for run, size in enumerate(more):
            longest = int(counts[:, run].max())
            if longest:
                lean, even = _growing(self.share.places(run), self.share.column(run), self.moments, longest)
                least += size * lean[counts[:, run]]
                most += size * even[counts[:, run]]
        return least.max(axis=1), most.max(axis=1)

    def needed(self, counts: Counts, more: Sequence[float], base: Array) -> tuple[float, tuple[Counts, ...]]:
        """Bytes at the fullest moment where units lie where they need least, and where: of each run, by chunk."""
        ways: list[list[tuple[Array, Counts]]] = []
        for run, count in enumerate(counts):
            places = self.share.places(run)
            if not count:
                ways.append([(numpy.zeros(len(base)), (0,) * len(self.share.open))])
                continue
            weights = tuple(tuple(row[chunk] - 1 for row in self.moments) for chunk in places)
            spread = ((numpy.array(vector), held) for vector, held in _spread(weights, count))
            ways.append([(vector, _by_chunk(places, held, len(self.share.open))) for vector, held in spread])
        best: tuple[float, tuple[Counts, ...]] | None = None
        for chosen in product(*ways):
            grown = base.copy()
            for size, (vector, _) in zip(more, chosen, strict=True):
                grown += size * vector
            fullest = float(grown.max())
            if best is None or fullest < best[0]:
                best = fullest, tuple(held for _, held in chosen)
        assert best is not None
        return best

    def spread(
        self, counts: Counts, more: Sequence[float], stashed: Sequence[float], room: float
    ) -> tuple[Counts, ...]:
        """Units of each chunk beyond those fixed, shape `(chunks, runs)`: evenly where they fit `room` bytes.

        Else where they need least.
        """
        base = self.base(more, stashed)
        if self.between([counts], more, stashed)[1][0] > room:
            return tuple(zip(*self.needed(counts, more, base)[1], strict=True))
        by_run = [
            _by_chunk(
                places, _evenly(tuple(self.share.column(run)[chunk] for chunk in places), count), len(self.share.open)
            )
            for run, count in enumerate(counts)
            for places in (self.share.places(run),)
        ]
        return tuple(zip(*by_run, strict=True))


def _evenly(fixed: Counts, count: int) -> Counts:
    """`count` units, each to the chunk that has fewest, of equals the first."""
    held = list(fixed)
    for _ in range(count):
        held[held.index(min(held))] += 1
    return tuple(one - other for one, other in zip(held, fixed, strict=True))


@lru_cache(maxsize=1 << 10)
def _growing(places: tuple[int, ...], fixed: Counts, moments: tuple[Moment, ...], longest: int) -> tuple[Array, Array]:
    """Micro-batches beyond one that 0, 1, ... units hold by moment: at least, and evenly spread.

    The units lie in the chunks of `places`, which hold `fixed` already.
    """
    weights = numpy.array([[row[chunk] - 1 for row in moments] for chunk in places])
    lean = numpy.arange(longest + 1)[:, None] * weights.min(axis=0)
    held, order = [fixed[chunk] for chunk in places], []
    for _ in range(longest):
        order.append(held.index(min(held)))
        held[order[-1]] += 1
    even = numpy.concatenate([numpy.zeros((1, len(moments))), numpy.cumsum(weights[order], axis=0)])
    return lean, even


def _by_chunk(places: Sequence[int], held: Counts, chunks: int) -> Counts:
    found = [0] * chunks
    for place, count in zip(places, held, strict=True):
        found[place] = count
    return tuple(found)


@lru_cache(maxsize=1 << 14)
def corners(moments: tuple[Moment, ...]) -> tuple[Moment, ...]:
    """The moments without those between two others, of which one needs as much memory whatever chunks hold."""
    every = numpy.array(sorted(set(moments)))
    left = []
    for place, row in enumerate(every):
        # Of many, only lines between moments that are nearly alike are tried: one too many costs time alone.
        near = slice(0, len(every)) if len(every) <= FEW_MOMENTS else slice(max(place - NEAR, 0), place + NEAR + 1)
        others = numpy.delete(every[near], place - near.start, axis=0)
        left.append(not _between(row, others))
    return tuple(tuple(row) for row in every[left].tolist())


def _between(moment: Array, others: Array) -> bool:
    """Whether a moment lies on the line between two others, or below it."""
    one, other = (others[places] for places in numpy.triu_indices(len(others), 1))
    gap, step = moment - one, other - one
    # Some share of the way from one to the other must reach what is held of every chunk.
    with numpy.errstate(divide="ignore", invalid="ignore"):
        share = gap / step
    low = numpy.where(step > 0, share, 0.0).max(axis=1, initial=0.0)
    high = numpy.where(step < 0, share, 1.0).min(axis=1, initial=1.0)
    return bool(((low <= high) & ~((step == 0) & (gap > 0)).any(axis=1)).any())


@lru_cache(maxsize=1 << 16)
def _spread(weights: tuple[Moment, ...], count: int) -> tuple[tuple[Moment, Counts], ...]:
    """How `count` units may lie in chunks: micro-batches held by moment, none as few as another's at all, with counts.

    Units are added one by one: what is no better at any moment stays so, whatever is added.
    """
    if not count:
        return ((tuple(0.0 for _ in weights[0]), (0,) * len(weights)),)
    found: dict[Moment, Counts] = {}
    for vector, held in _spread(weights, count - 1):
        for chunk, each in enumerate(weights):
            grown = tuple(one + other for one, other in zip(vector, each, strict=True))
            more = (*held[:chunk], held[chunk] + 1, *held[chunk + 1 :])
            if grown not in found or sorted(more) < sorted(found[grown]):
                found[grown] = more
    kept: list[tuple[Moment, Counts]] = []
    for vector in sorted(found, key=lambda each: (sum(each), each)):
        if not any(all(one <= other for one, other in zip(each, vector, strict=True)) for each, _ in kept):
            kept.append((vector, found[vector]))
    return tuple(kept)
