"""Which blocks the stages of mixed plans can have: what they take at least by width, and the room beside all others.

The blocks of a replica lie one behind the other, each at a multiple of its width, and their widths add up to what the
plan uses. So what stages behind need at least, and what those in front do, leave each stage some room; a block that is
wider, or too slow, is in no plan (docs/explanation/proofs.md, "Mixed plans").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy
from attrs import field, frozen
from numpy.typing import NDArray

from nest.instance import Array
from nest.solve.dp.bounds import LeastTimes
from nest.solve.dp.configurations import Tally
from nest.solve.dp.pairs import Pairs, Rows, distinct
from nest.solve.dp.stages import window
from nest.solve.search import Meter

if TYPE_CHECKING:
    from nest.solve.dp.members import Member


@frozen
class Room:
    """Devices that the blocks of a replica have.

    Attributes:
        devices: how many.
        aligned: whether blocks start at multiples of their widths; if not, only what they add up to counts.
    """

    devices: int
    aligned: bool

    def after(self, taken: Array, widths: NDArray[numpy.int64]) -> Array:
        """The devices that are taken where one more block comes behind (or in front of) so many."""
        begins: Array = numpy.ceil(taken / widths) * widths if self.aligned else taken
        return begins + widths


def rooms(size: int, tally: Tally) -> tuple[Room, ...]:
    """What bounds the blocks of a replica of `size` devices: its places, and what a plan may use."""
    most = tally.most(size)
    places = Room(size, True)
    return (places,) if most >= size else (places, Room(most, False))


@frozen(eq=False, repr=False)
class Blocks:
    """Blocks that stages may have.

    Attributes:
        count: number of downsets.
        larger: the downset behind the front of each.
        smaller: the downset behind its end.
        width: its devices.
    """

    count: int
    larger: NDArray[numpy.int32]
    smaller: NDArray[numpy.int32]
    width: NDArray[numpy.int64]

    @cached_property
    def _from_front(self) -> tuple[NDArray[numpy.int64], NDArray[numpy.int32], NDArray[numpy.int64]]:
        order = numpy.argsort(self.smaller, kind="stable")
        ends = self.smaller[order]
        starts = numpy.flatnonzero(numpy.diff(ends, prepend=-1))
        return order, ends[starts], starts

    @cached_property
    def _starts(self) -> NDArray[numpy.int64]:
        return numpy.flatnonzero(numpy.diff(self.larger, prepend=-1))

    def behind(self, room: Room, taken: Array) -> Array:
        """What is taken of a room from its end when one of these comes in front of what is `taken` there.

        For each downset, less the devices of the room: 0 or less, infinite where nothing fits. Shape `(downsets,)`.
        """
        least = numpy.full(self.count, numpy.inf)
        if len(self._starts):
            ends = room.after(taken[self.smaller], self.width)
            least[self.larger[self._starts]] = numpy.minimum.reduceat(ends, self._starts)
            least[least > 0] = numpy.inf
        return least

    def in_front(self, room: Room, taken: Array) -> Array:
        """What is taken of a room from its beginning when one of these comes behind what is `taken` there."""
        order, ends, starts = self._from_front
        least = numpy.full(self.count, numpy.inf)
        if len(starts):
            after = room.after(taken[self.larger], self.width)[order]
            least[ends] = numpy.minimum.reduceat(after, starts)
            least[least > room.devices] = numpy.inf
        return least


def _possible(least: Array, limit: float) -> NDArray[numpy.bool_]:
    """What may keep a limit."""
    possible: NDArray[numpy.bool_] = (least <= limit) & (least < numpy.inf)
    return possible


@frozen(eq=False, repr=False)
class LeastByWidth:
    """What the stages of some members take at least, by the width of their blocks.

    Attributes:
        pairs: the stages.
        widths: ascending, shape `(widths,)`.
        least: the least of each, infinite where no member has it with such a block, shape `(widths, pairs)`.
    """

    pairs: Pairs
    widths: NDArray[numpy.int64]
    least: Array
    _narrower: Array = field(init=False)

    @_narrower.default
    def _least_of_narrower(self) -> Array:
        """The least that each takes in a block whose width divides this one."""
        narrower = numpy.full(self.least.shape, numpy.inf)
        for row, width in enumerate(self.widths.tolist()):
            divides = (width % self.widths == 0) & (self.widths < width)
            narrower[row] = self.least[divides].min(axis=0, initial=numpy.inf)
        return narrower

    def within(self, limit: float) -> Blocks:
        """The blocks of the stages that take at most `limit`.

        Of those of a stage whose widths divide each other the narrowest, which fits wherever the wider ones do.
        """
        usable = _possible(self.least, limit) & ~_possible(self._narrower, limit)
        pair, row = numpy.nonzero(usable.T)
        return self._blocks(pair, self.widths[row])

    def of_width(self, width: int, limit: float) -> Blocks:
        """The blocks of that width of the stages that take at most `limit`."""
        (pair,) = numpy.nonzero(_possible(self.least[self.widths == width], limit).any(axis=0))
        return self._blocks(pair, numpy.full(len(pair), width, dtype=numpy.int64))

    def _blocks(self, pair: NDArray[numpy.int64], width: NDArray[numpy.int64]) -> Blocks:
        return Blocks(self.pairs.count, self.pairs.larger[pair], self.pairs.smaller[pair], width)


def fitting(
    by_stage: Sequence[LeastByWidth], limit: float, size: int, tally: Tally, meter: Meter
) -> NDArray[numpy.bool_]:
    """For 1 to `len(by_stage)` stages, whether blocks within `limit` fit into a replica, as far as a quick look tells.

    Args:
        by_stage: of stage `j` from the end what it takes at least, at index `j - 1`.
        limit: most that a stage may take.
        size: devices of a replica.
        tally: what the stages must add up to; of its totals the largest counts.
        meter: counts the work.
    """
    fits = numpy.ones(len(by_stage), dtype=bool)
    known: dict[LeastByWidth, Blocks] = {}
    for room in rooms(size, tally):
        nothing = numpy.full(by_stage[0].pairs.count, numpy.inf)
        # Blocks lie one behind the other: what starts as late as it can leaves most room in front.
        start = nothing.copy()
        start[0] = -float(room.devices)
        taken, without = (start, nothing) if not tally.demanded else (nothing, start)
        for index, each in enumerate(by_stage):
            if each not in known:
                known[each] = each.within(limit)
            blocks = known[each]
            taken = blocks.behind(room, taken)
            if tally.demanded:
                demanded = each.of_width(tally.demanded, limit)
                taken = numpy.minimum(taken, demanded.behind(room, without))
                without = blocks.behind(room, without)
            meter.count(len(blocks.width))
            fits[index] &= bool(numpy.isfinite(taken[-1]))
    return fits


@frozen(eq=False, repr=False)
class MemberTimes:
    """What the stages of several members take at least, each member's and the least of all.

    Attributes:
        members: what stages may use.
        pairs: every stage that one of them has.
        widths: of their blocks, ascending.
    """

    members: Sequence[Member]
    pairs: Pairs
    widths: NDArray[numpy.int64]
    _places: tuple[NDArray[numpy.int64], ...]
    _times: tuple[LeastTimes, ...]
    _known: dict[tuple[float, ...], tuple[LeastByWidth, tuple[Array, ...]]] = field(factory=dict, init=False)

    @classmethod
    def of_members(cls, members: Sequence[Member]) -> MemberTimes:
        """Those of members whose boundaries are at their cheapest."""
        count = members[0].tables.pairs.count
        codes = [each.tables.pairs.larger.astype(numpy.int64) * count + each.tables.pairs.smaller for each in members]
        every = distinct(numpy.concatenate(codes))
        pairs = Pairs.of(count, (every // count).astype(numpy.int32), (every % count).astype(numpy.int32))
        places = tuple(numpy.searchsorted(every, each) for each in codes)
        times = tuple(LeastTimes(each.tables, each.times[0], False) for each in members)
        return cls(members, pairs, numpy.unique([each.width for each in members]), places, times)

    @property
    def parted(self) -> bool:
        """As `LeastTimes.parted`."""
        return self._times[0].parted

    def window(self, after: int, before: int, time_limit: float) -> Rows:
        """As `StageTables.window`."""
        return window(self.pairs, self.members[0].tables.compute, after, before, time_limit)

    def of(self, in_flight: float) -> tuple[Array, ...]:
        """As `LeastTimes.of`, the least of all members."""
        return self._of(in_flight)[1]

    def by_width(self, in_flight: float) -> LeastByWidth:
        """Seconds per micro-batch of the stages with so many micro-batches in flight."""
        return self._of(in_flight)[0]

    def _of(self, in_flight: float) -> tuple[LeastByWidth, tuple[Array, ...]]:
        key = tuple(each.tables.same_fits(in_flight) for each in self.members)
        if key not in self._known:
            least = numpy.full((len(self.widths), len(self.pairs)), numpy.inf)
            terms: list[Array] = []
            for member, places, times in zip(self.members, self._places, self._times, strict=True):
                figures = times.of(in_flight)
                terms = terms or [numpy.full(len(self.pairs), numpy.inf) for _ in figures]
                row = least[int(self.widths.searchsorted(member.width))]
                for total, values in zip((row, *terms), (figures[0], *figures), strict=True):
                    total[places] = numpy.minimum(total[places], values)
            self._known[key] = LeastByWidth(self.pairs, self.widths, least), tuple(terms)
        return self._known[key]

    def least_limits(
        self, in_flight: Sequence[float], counts: Iterable[int], limit: float, size: int, tally: Tally, meter: Meter
    ) -> dict[int, float]:
        """For each of `counts` stages the least time limit within which their blocks fit; infinite above `limit`."""
        by_stage = [self.by_width(flying) for flying in in_flight]
        every = [each.least[_possible(each.least, limit)] for each in dict.fromkeys(by_stage)]
        # Blocks that fit within a limit fit within the slowest of their times.
        times = distinct(numpy.concatenate(every))
        known: dict[int, NDArray[numpy.bool_]] = {}

        def fits(place: int, count: int) -> bool:
            if place not in known:
                known[place] = fitting(by_stage, float(times[place]), size, tally, meter)
            return bool(known[place][count - 1])

        limits = {}
        for count in counts:
            below, above = -1, len(times)
            while above - below > 1:
                middle = (below + above) // 2
                below, above = (below, middle) if fits(middle, count) else (middle, above)
            limits[count] = float(times[above]) if above < len(times) else numpy.inf
        return limits

    def placeable(
        self, in_flight: Sequence[float], time_limit: float, size: int, tally: Tally
    ) -> list[NDArray[numpy.bool_]]:
        """Of each member the stages within a time limit that leave room for the others, whose number is decided."""
        by_stage = [self.by_width(flying) for flying in in_flight]
        blocks = {each: each.within(time_limit) for each in by_stage}
        roomy = numpy.ones((len(in_flight), len(self.widths), len(self.pairs)), dtype=bool)
        widths = self.widths[:, None]
        for room in rooms(size, tally):
            nothing = numpy.full(self.pairs.count, numpy.inf)
            end, start = nothing.copy(), nothing
            end[0], start[-1] = -float(room.devices), 0.0
            ends = [end]
            for each in by_stage[:-1]:
                ends.append(blocks[each].behind(room, ends[-1]))
            for index in range(len(in_flight) - 1, -1, -1):
                taken = room.after(start[self.pairs.larger], widths) + ends[index][self.pairs.smaller]
                roomy[index] &= taken <= 0
                start = blocks[by_stage[index]].in_front(room, start)
        masks = []
        for member, places, times in zip(self.members, self._places, self._times, strict=True):
            row = int(self.widths.searchsorted(member.width))
            mask = numpy.zeros(len(places), dtype=bool)
            for index, flying in enumerate(in_flight):
                mask |= _possible(times.of(flying)[0], time_limit) & roomy[index, row, places]
            masks.append(mask)
        return masks
