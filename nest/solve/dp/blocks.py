"""Possible blocks of stages of mixed plans: least needs by width, and the room left by all others.

The blocks of a replica are consecutive, each at a multiple of its width, and their widths sum to the plan's devices. So
the least needs of earlier and later stages limit each stage; a wider or slower block is in no plan
(docs/explanation/proofs.md, "Mixed plans").
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
    """Devices for the blocks of a replica."""

    devices: int
    aligned: bool  # Blocks start at multiples of their widths; if not, only their sum counts.

    def after(self, taken: Array, widths: NDArray[numpy.int64]) -> Array:
        """Devices taken after one more block next to those `taken`."""
        begins: Array = numpy.ceil(taken / widths) * widths if self.aligned else taken
        return begins + widths


def rooms(size: int, tally: Tally) -> tuple[Room, ...]:
    """Limits on the blocks of a replica of `size` devices: its places, and the devices a plan may use."""
    most = tally.most(size)
    places = Room(size, True)
    return (places,) if most >= size else (places, Room(most, False))


@frozen(eq=False, repr=False)
class Blocks:
    """Possible blocks of stages."""

    count: int  # Number of downsets.
    larger: NDArray[numpy.int32]  # Downset before each block.
    smaller: NDArray[numpy.int32]  # Downset after it.
    width: NDArray[numpy.int64]  # Devices.

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
        """Devices taken from the end of a room after adding a block before those `taken`. Shape `(downsets,)`.

        Relative to the devices of the room: 0 or less, infinite if nothing fits.
        """
        least = numpy.full(self.count, numpy.inf)
        if len(self._starts):
            ends = room.after(taken[self.smaller], self.width)
            least[self.larger[self._starts]] = numpy.minimum.reduceat(ends, self._starts)
            least[least > 0] = numpy.inf
        return least

    def in_front(self, room: Room, taken: Array) -> Array:
        """Devices taken from the start of a room after adding a block behind those `taken`."""
        order, ends, starts = self._from_front
        least = numpy.full(self.count, numpy.inf)
        if len(starts):
            after = room.after(taken[self.larger], self.width)[order]
            least[ends] = numpy.minimum.reduceat(after, starts)
            least[least > room.devices] = numpy.inf
        return least


def _possible(least: Array, limit: float) -> NDArray[numpy.bool_]:
    possible: NDArray[numpy.bool_] = (least <= limit) & (least < numpy.inf)
    return possible


@frozen(eq=False, repr=False)
class LeastByWidth:
    """Least needs of the stages of some members by block width."""

    pairs: Pairs
    widths: NDArray[numpy.int64]  # Ascending, shape `(widths,)`.
    least: Array  # Infinite if no member has the stage in such a block, shape `(widths, pairs)`.
    _narrower: Array = field(init=False)

    @_narrower.default
    def _least_of_narrower(self) -> Array:
        """Least need in a block whose width divides this one."""
        narrower = numpy.full(self.least.shape, numpy.inf)
        for row, width in enumerate(self.widths.tolist()):
            divides = (width % self.widths == 0) & (self.widths < width)
            narrower[row] = self.least[divides].min(axis=0, initial=numpy.inf)
        return narrower

    def within(self, limit: float) -> Blocks:
        """Blocks of stages that take at most `limit`.

        Of a stage's widths that divide each other, only the narrowest, which fits wherever wider ones do.
        """
        usable = _possible(self.least, limit) & ~_possible(self._narrower, limit)
        pair, row = numpy.nonzero(usable.T)
        return self._blocks(pair, self.widths[row])

    def of_width(self, width: int, limit: float) -> Blocks:
        """Blocks of that width of stages that take at most `limit`."""
        (pair,) = numpy.nonzero(_possible(self.least[self.widths == width], limit).any(axis=0))
        return self._blocks(pair, numpy.full(len(pair), width, dtype=numpy.int64))

    def _blocks(self, pair: NDArray[numpy.int64], width: NDArray[numpy.int64]) -> Blocks:
        return Blocks(self.pairs.count, self.pairs.larger[pair], self.pairs.smaller[pair], width)


def fitting(
    by_stage: Sequence[LeastByWidth], limit: float, size: int, tally: Tally, meter: Meter
) -> NDArray[numpy.bool_]:
    """Quick check whether blocks within `limit` fit into a replica, for 1 to `len(by_stage)` stages.

    Args:
        by_stage: least needs of stage `j` from the end, at index `j - 1`.
        size: devices of a replica.
        tally: required totals; the largest counts.
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
    """Least times of the stages of several members, each and the least of all; `widths` are ascending."""

    members: Sequence[Member]
    pairs: Pairs
    widths: NDArray[numpy.int64]
    _places: tuple[NDArray[numpy.int64], ...]
    _times: tuple[LeastTimes, ...]
    _known: dict[tuple[float, ...], tuple[LeastByWidth, tuple[Array, ...]]] = field(factory=dict, init=False)

    @classmethod
    def of_members(cls, members: Sequence[Member]) -> MemberTimes:
        """Times of members with the cheapest boundaries."""
        count = members[0].tables.pairs.count
        codes = [each.tables.pairs.larger.astype(numpy.int64) * count + each.tables.pairs.smaller for each in members]
        every = distinct(numpy.concatenate(codes))
        pairs = Pairs.of(count, (every // count).astype(numpy.int32), (every % count).astype(numpy.int32))
        places = tuple(numpy.searchsorted(every, each) for each in codes)
        times = tuple(LeastTimes(each.tables, each.times[0], False) for each in members)
        return cls(members, pairs, numpy.unique([each.width for each in members]), places, times)

    @property
    def parted(self) -> bool:
        """See `StageTimes`."""
        return self._times[0].parted

    def window(self, after: int, before: int, time_limit: float) -> Rows:
        """See `StageTimes`."""
        return window(self.pairs, self.members[0].tables.compute, after, before, time_limit)

    def of(self, in_flight: float) -> tuple[Array, ...]:
        """See `StageTimes`."""
        return self._of(in_flight)[1]

    def by_width(self, in_flight: float) -> LeastByWidth:
        """Seconds per micro-batch of stages with so many micro-batches in flight, by width."""
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
        """Least time limit within which the blocks fit, for each of `counts` stages; infinite above `limit`."""
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
        """Stages of each member within a time limit that leave room for the others, for a fixed number of stages."""
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
