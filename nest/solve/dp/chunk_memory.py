"""Contents of the chunks of a stage, and its memory.

Memory depends on which chunk has which units, as chunks hold different numbers of micro-batches: free units go where
they need least.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import product

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.instance import Array
from nest.instance.schedule import Moment
from nest.solve.dp.units import Pattern

Counts = tuple[int, ...]  # Units of each run.
MOST_WAYS = 512  # Most placements of units in chunks that are all kept.
LAID = 8  # Options of stages that take as long as a placement of units in chunks.


@frozen(cache_hash=True)
class Share:
    """A stage's share of a pattern."""

    fixed: tuple[Counts, ...]  # Least units of each run in each chunk. Shape `(chunks, runs)`.
    room: tuple[Counts, ...]  # Further units that each may hold. Shape `(chunks, runs)`.

    @classmethod
    def of(cls, pattern: Pattern, chunks: Sequence[int]) -> "Share":
        """Share of the stage with these chunks."""
        slack = pattern.slack
        return cls(
            tuple(pattern.fixed(chunk) for chunk in chunks),
            tuple(
                tuple(min(most - least, left) for (least, most), left in zip(pattern.held[chunk], slack, strict=True))
                for chunk in chunks
            ),
        )

    def most(self, slack: Counts) -> Counts:
        """Most units of each run that the stage may hold beyond the fixed ones."""
        return tuple(min(left, sum(row[run] for row in self.room)) for run, left in enumerate(slack))

    def places(self, run: int) -> tuple[int, ...]:
        """Chunks that may hold more of a run."""
        return tuple(chunk for chunk, room in enumerate(self.room) if room[run])

    def rooms(self, run: int) -> Counts:
        """Further units of a run that each of these may hold."""
        return tuple(room[run] for room in self.room if room[run])

    def column(self, run: int) -> Counts:
        """Least units of a run in each chunk."""
        return tuple(row[run] for row in self.fixed)


@frozen(eq=False, repr=False)
class Held:
    """Micro-batches held by the chunks of a stage."""

    moments: tuple[Moment, ...]  # By chunk, at the possibly fullest moments.
    share: Share  # Contents of the chunks.

    @cached_property
    def beyond_one(self) -> Array:
        """Micro-batches of each chunk beyond one. Shape `(moments, chunks)`."""
        return numpy.array(self.moments, dtype=numpy.float64) - 1

    @cached_property
    def _fixed(self) -> Array:
        return numpy.array(self.share.fixed, dtype=numpy.float64)

    def base(self, more: Sequence[float], stashed: Sequence[float] | Array) -> Array:
        """Bytes of micro-batches beyond one of fixed units, by moment.

        Args:
            more: bytes of each further micro-batch, by run.
            stashed: bytes of each chunk's stashed inputs.
        """
        base: Array = self.beyond_one @ (self._fixed @ numpy.array(more) + numpy.array(stashed))
        return base

    def grown(self, further: NDArray[numpy.int64]) -> list[tuple[int, Array, Array]]:
        """Micro-batches beyond one of further units, by run: least, and evenly spread. Shape `(points, moments)` each.

        Runs without further units are left out. `further` has shape `(points, runs)`.
        """
        found = []
        for run, longest in enumerate(numpy.maximum.reduce(further).tolist()):
            if longest:
                counts = further[:, run]
                share = self.share
                lean, even = _growing(share.places(run), share.rooms(run), share.column(run), self.moments, longest)
                found.append((run, lean[counts], even[counts]))
        return found

    def between(
        self, grown: Sequence[tuple[int, Array, Array]], more: Sequence[float], stashed: Sequence[float] | Array
    ) -> tuple[Array, Array]:
        """Bytes of micro-batches beyond one: least, and with even spread. Shape `(points,)`.

        With one moment the least is exact. `grown` comes from `grown`, the rest from `base`.
        """
        least = most = self.base(more, stashed)[None]
        for run, lean, even in grown:
            least, most = least + more[run] * lean, most + more[run] * even
        return numpy.maximum.reduce(least, axis=1), numpy.maximum.reduce(most, axis=1)

    def needed(self, counts: Counts, more: Sequence[float], base: Array) -> tuple[float, tuple[Counts, ...]]:
        """Least bytes at the fullest moment, and the placement of units: by run and chunk."""
        ways: list[list[tuple[Array, Counts]]] = []
        for run, count in enumerate(counts):
            places = self.share.places(run)
            if not count:
                ways.append([(numpy.zeros(len(base)), (0,) * len(self.share.room))])
                continue
            weights = tuple(tuple(row[chunk] - 1 for row in self.moments) for chunk in places)
            every = _spread(weights, self.share.rooms(run), count)
            spread = ((numpy.array(vector), held) for vector, held in every)
            ways.append([(vector, _by_chunk(places, held, len(self.share.room))) for vector, held in spread])
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

    def ways(
        self, counts: Counts, more: Sequence[float], base: Array, room: float, look: Callable[[int], None]
    ) -> Iterator[tuple[Counts, ...]]:
        """Yield placements of units in chunks within `room` bytes. Shape `(chunks, runs)` each.

        `look` is called for each, fitting or not, as there may be very many; it may raise.
        """
        for chosen in self._columns(counts, 0):
            look(LAID)
            laid = tuple(zip(*chosen, strict=True))
            if self._needs(laid, more, base) <= room:
                yield laid

    def _columns(self, counts: Counts, run: int) -> Iterator[tuple[Counts, ...]]:
        """Placements of the units of runs from one on, by run."""
        if run == len(counts):
            yield ()
            return
        places, chunks = self.share.places(run), len(self.share.room)
        for each in _laid(self.share.rooms(run), counts[run]):
            yield from ((_by_chunk(places, each, chunks), *rest) for rest in self._columns(counts, run + 1))

    def most(self, further: NDArray[numpy.int64], more: Sequence[float], stashed: Sequence[float]) -> Array:
        """Upper bound on bytes of micro-batches beyond one, for any placement of further units. Shape `(points,)`."""
        highest: Array = self.base(more, stashed).max() + max(self.beyond_one.max(), 0.0) * (
            further @ numpy.array(more)
        )
        return highest

    def even_ways(
        self, counts: Counts, more: Sequence[float], base: Array, room: float
    ) -> list[tuple[Counts, ...] | None]:
        """Evenly spread units, the remainder from each chunk on in turn, in the form of `ways`; None: too large."""
        found: list[tuple[Counts, ...] | None] = []
        for first in range(len(self.share.room)):
            columns = []
            for run, count in enumerate(counts):
                places, rooms = self.share.places(run), self.share.rooms(run)
                fixed = [sum(self.share.fixed[chunk]) for chunk in places]
                turned = sorted(range(len(places)), key=lambda place: (places[place] < first, place))
                order = _evenly([fixed[place] for place in turned], [rooms[place] for place in turned], count)
                held = tuple(order.count(turned.index(place)) for place in range(len(places)))
                columns.append(_by_chunk(places, held, len(self.share.room)))
            laid = tuple(zip(*columns, strict=True))
            found.append(laid if self._needs(laid, more, base) <= room else None)
        return found

    def _needs(self, laid: Sequence[Counts], more: Sequence[float], base: Array) -> float:
        """Bytes at the fullest moment with these placements of further units."""
        return float((base + self.beyond_one @ (numpy.array(laid, dtype=numpy.float64) @ numpy.array(more))).max())

    def spread(
        self, counts: Counts, more: Sequence[float], stashed: Sequence[float] | Array, room: float
    ) -> tuple[Counts, ...]:
        """Place further units, shape `(chunks, runs)`: evenly if that fits `room` bytes, else with the least bytes."""
        base = self.base(more, stashed)
        if self.between(self.grown(numpy.array([counts])), more, stashed)[1][0] > room:
            return tuple(zip(*self.needed(counts, more, base)[1], strict=True))
        by_run = []
        for run, count in enumerate(counts):
            places, column = self.share.places(run), self.share.column(run)
            order = _evenly([column[chunk] for chunk in places], self.share.rooms(run), count)
            by_run.append([order.count(places.index(chunk)) if chunk in places else 0 for chunk in range(len(column))])
        return tuple(zip(*by_run, strict=True))


def chunks_of_stages(homes: Sequence[int]) -> list[list[int]]:
    """Chunks of each stage."""
    found: list[list[int]] = [[] for _ in range(max(homes) + 1)]
    for chunk, home in enumerate(homes):
        found[home].append(chunk)
    return found


def _evenly(fixed: Sequence[int], rooms: Sequence[int], count: int) -> list[int]:
    """Place `count` units one by one where there are fewest and room is left; ties go to the first."""
    held, order = list(fixed), list[int]()
    most = [own + room for own, room in zip(fixed, rooms, strict=True)]
    for _ in range(count):
        open_ = [place for place, own in enumerate(held) if own < most[place]]
        order.append(min(open_, key=held.__getitem__))
        held[order[-1]] += 1
    return order


@lru_cache(maxsize=1 << 10)
def _growing(
    places: tuple[int, ...], rooms: Counts, fixed: Counts, moments: tuple[Moment, ...], longest: int
) -> tuple[Array, Array]:
    """Micro-batches beyond one of 0, 1, ... units by moment: least, and evenly spread.

    The units go to the chunks of `places`, which already hold `fixed`.
    """
    weights = numpy.array([[row[chunk] - 1 for row in moments] for chunk in places])
    none = numpy.zeros((1, len(moments)))
    leanest = numpy.sort(weights.repeat(rooms, axis=0), axis=0)[:longest]
    order = _evenly([fixed[chunk] for chunk in places], rooms, longest)
    lean, even = (numpy.concatenate([none, numpy.cumsum(rows, axis=0)]) for rows in (leanest, weights[order]))
    return lean, even


def _laid(rooms: Counts, count: int) -> Iterator[Counts]:
    """Placements of so many units, those with most in the first places first."""
    if not rooms:
        if not count:
            yield ()
        return
    for own in range(min(rooms[0], count), max(count - sum(rooms[1:]), 0) - 1, -1):
        yield from ((own, *rest) for rest in _laid(rooms[1:], count - own))


def _by_chunk(places: Sequence[int], held: Counts, chunks: int) -> Counts:
    found = [0] * chunks
    for place, count in zip(places, held, strict=True):
        found[place] = count
    return tuple(found)


def _spread(weights: tuple[Moment, ...], rooms: Counts, count: int) -> tuple[tuple[Moment, Counts], ...]:
    """Undominated placements of units in chunks: micro-batches by moment, with counts."""
    return tuple(_leanest(_placed(weights, rooms, count)))


@lru_cache(maxsize=1 << 16)
def _placed(weights: tuple[Moment, ...], rooms: Counts, count: int) -> Mapping[Moment, Counts]:
    """Same with dominated placements.

    Units are added one by one. Only the leanest partial placements are kept: another could need less only if its chunks
    have room for a unit and theirs do not.
    """
    if not count:
        return {tuple(0.0 for _ in weights[0]): (0,) * len(weights)}
    before = _placed(weights, rooms, count - 1)
    found: dict[Moment, Counts] = {}
    seen: set[Counts] = set()
    for vector, held in before.items():
        for chunk, each in enumerate(weights):
            more = (*held[:chunk], held[chunk] + 1, *held[chunk + 1 :])
            if held[chunk] == rooms[chunk] or more in seen:
                continue
            seen.add(more)
            grown = tuple(one + other for one, other in zip(vector, each, strict=True))
            if grown not in found or sorted(more) < sorted(found[grown]):
                found[grown] = more
    return found if len(found) <= MOST_WAYS else dict(_leanest(found))


def _leanest(found: Mapping[Moment, Counts]) -> list[tuple[Moment, Counts]]:
    """Placements with no more need at every moment than others, the leanest in all first."""
    kept: list[tuple[Moment, Counts]] = []
    for vector in sorted(found, key=lambda each: (sum(each), each)):
        if not any(all(one <= other for one, other in zip(each, vector, strict=True)) for each, _ in kept):
            kept.append((vector, found[vector]))
    return kept
