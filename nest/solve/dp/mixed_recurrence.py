"""The recurrence for stages of different candidates, over the offsets of their blocks.

As in `nest.solve.dp.recurrence`, stages are counted from the end and an entry is the least sum of stage times under
limits on each stage's time and gradient reduction. Here a block may start at any multiple of its own width, and entries
are kept per tally of what the stages so far add up to. Most offsets have the same future, so futures and entries are
kept once each, and offsets point to them.
"""

from collections.abc import Iterator, Sequence

import numpy
from attrs import define, field, frozen
from numpy.typing import NDArray

from nest.instance import Array, Weights
from nest.solve.dp.choices import UNKNOWN
from nest.solve.dp.configurations import Offsets, State, Tally
from nest.solve.dp.fastest import Fastest, cheapest
from nest.solve.dp.pairs import Rows
from nest.solve.dp.pareto import Partition, PlacedStage
from nest.solve.dp.recurrence import cheapest_stage, weighed_boundaries
from nest.solve.dp.stages import StageTables
from nest.solve.search import Meter

NONE = -1
"""Points to no array: nothing can follow, or no stage can start there."""

Block = tuple[State, int]
"""A tally after a stage, and the stage's width."""


@frozen(eq=False, repr=False)
class Member:
    """A candidate that stages may use.

    Attributes:
        candidate: its index in the instance.
        width: devices of its blocks.
        tables: its stages.
        times: seconds that a boundary at each level adds, shape `(levels, downsets)`.
        levels: the level of each row of `times`; `UNKNOWN` where boundaries are at their cheapest.
    """

    candidate: int
    width: int
    tables: StageTables
    times: Array
    levels: tuple[int, ...]

    def without_levels(self) -> "Member":
        """The same with every boundary at its cheapest level."""
        return Member(self.candidate, self.width, self.tables, self.times.min(axis=0)[None, :], (UNKNOWN,))


@define(eq=False, repr=False)
class _Pool:
    """Arrays kept once each."""

    arrays: list[Array] = field(factory=list)
    _known: dict[bytes, int] = field(factory=dict)

    def add(self, array: Array) -> int:
        """Where `array` is kept; `NONE` when it is infinite throughout."""
        if not numpy.isfinite(array).any():
            return NONE
        place = self._known.setdefault(array.tobytes(), len(self.arrays))
        if place == len(self.arrays):
            self.arrays.append(array)
        return place


@define(eq=False, repr=False)
class _Stage:
    """Entries and futures of one stage number; both per block kind, an index per multiple of the width."""

    entries: _Pool = field(factory=_Pool)
    entry_at: dict[Block, NDArray[numpy.int64]] = field(factory=dict)
    futures: _Pool = field(factory=_Pool)
    future_at: dict[Block, NDArray[numpy.int64]] = field(factory=dict)


@frozen(eq=False, repr=False)
class _Stages:
    """A member's stages for one stage number.

    Of `cost`, without boundaries, `larger` and `smaller` one per row; `around` as `weighed_boundaries` has it.
    """

    member: Member
    rows: Rows
    best: Fastest
    cost: Array
    around: tuple[Array, Array]
    larger: NDArray[numpy.int32]
    smaller: NDArray[numpy.int32]


@define(eq=False, repr=False)
class MixedRecurrence:
    """The recurrence for a fixed number of stages.

    Attributes:
        members: what stages may use.
        in_flight: micro-batches in flight of stage `j` from the end, at index `j - 1`.
        places: the devices of a replica.
        tally: what the stages must add up to.
        downsets: number of downsets.
        meter: counts the work.
        weights: as `Recurrence`.
    """

    members: Sequence[Member]
    in_flight: tuple[float, ...]
    places: Offsets
    tally: Tally
    downsets: int
    meter: Meter
    weights: Weights | None = None
    _best: dict[tuple[int, float], Fastest] = field(factory=dict)
    _best_limit: float = -1.0

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.in_flight)

    def run(self, time_limit: float, sync_limit: float) -> Partition | None:
        """A partition and placement with the least sum of stage times, or None when none keeps the limits.

        Args:
            time_limit: most seconds any stage may take per micro-batch.
            sync_limit: most seconds any stage may synchronise per batch.
        """
        if sync_limit != self._best_limit:
            self._best.clear()
            self._best_limit = sync_limit
        done: list[_Stage] = []
        for stage in range(1, self.stages + 1):
            current = _Stage()
            self._add_futures(current, done[-1] if done else None, stage)
            self._add_entries(current, stage, time_limit, sync_limit)
            done.append(current)
        return self._recover(done, time_limit, sync_limit)

    def _widths(self) -> list[int]:
        return sorted({member.width for member in self.members})

    def _fastest(self, member: int, stage: int, sync_limit: float) -> Fastest:
        """Choices of a member's stages that add least to the sum, remembered while the limit stays."""
        used, flying = self.members[member], self.in_flight[stage - 1]
        key = (member, used.tables.same_fits(flying))
        if key not in self._best:
            self._best[key] = cheapest(used.tables, flying, sync_limit, used.times, used.levels, self.weights)
        return self._best[key]

    def _offsets(self, width: int) -> NDArray[numpy.int64]:
        return numpy.arange(0, self.places.size - width + 1, width, dtype=numpy.int64)

    def _add_futures(self, current: _Stage, later: _Stage | None, stage: int) -> None:
        """For every place of a block, the least cost of what follows by level of the boundary behind and downset."""
        if later is None:
            nothing = numpy.full((self.places.levels, self.downsets), numpy.inf)
            nothing[0, 0] = 0.0
            end = current.futures.add(nothing)
            for width in self._widths():
                state = self.tally.step(self.tally.start, width)
                if state is not None:
                    offsets = self._offsets(width)
                    current.future_at[state, width] = numpy.where(self._room_before(offsets, stage), end, NONE)
            return
        # What can follow a block at an offset is, by level, a run of places that ends with a group: a suffix of it. Of
        # offsets that reach the same suffixes the futures are the same, and worked out once.
        followers = {block: self._suffixes(later, block) for block in later.entry_at}
        for width in self._widths():
            offsets = self._offsets(width)
            room = self._room_before(offsets, stage)
            states = {block[0] for block in followers}
            for state in self.tally.after(states, (width,)):
                before = [block for block in followers if self.tally.step(block[0], width) == state]
                keys = numpy.stack([key for block in before for key in self._reached(offsets, width, block, followers)])
                keys[:, ~room] = NONE
                distinct, which = numpy.unique(keys, axis=1, return_inverse=True)
                pools = [followers[block][level][1] for block in before for level in range(self.places.levels)]
                made = [current.futures.add(self._future(column, pools)) for column in distinct.T.tolist()]
                current.future_at[state, width] = numpy.array(made, dtype=numpy.int64)[which.reshape(-1)]

    def _room_before(self, offsets: NDArray[numpy.int64], stage: int) -> NDArray[numpy.bool_]:
        """Whether the stages in front fit in front."""
        enough: NDArray[numpy.bool_] = offsets >= (self.stages - stage) * self._widths()[0]
        return enough

    def _future(self, column: list[int], pools: list[list[Array]]) -> Array:
        levels = self.places.levels
        future = numpy.full((levels, self.downsets), numpy.inf)
        for row, (index, pool) in enumerate(zip(column, pools, strict=True)):
            if index != NONE:
                numpy.minimum(future[row % levels], pool[index], out=future[row % levels])
        return future

    def _suffixes(self, later: _Stage, block: Block) -> list[tuple[NDArray[numpy.int64], list[Array]]]:
        """Per level, for each place the least entry from there to the end of its group, as an index and the arrays."""
        width, suffixes = block[1], []
        rows = later.entry_at[block].tolist()
        for level in range(self.places.levels):
            last = ((self.places.ends[level][self._offsets(width)] - width) // width).tolist()
            pool: list[Array] = []
            merged: dict[tuple[int, int], int] = {}
            index = [NONE] * len(rows)
            for place in range(len(rows) - 1, -1, -1):
                if place <= last[place]:
                    following = index[place + 1] if place < last[place] else NONE
                    key = (following, rows[place])
                    if key not in merged:
                        merged[key] = self._merge(pool, following, rows[place], later.entries.arrays, level)
                    index[place] = merged[key]
            suffixes.append((numpy.array(index, dtype=numpy.int64), pool))
        return suffixes

    @staticmethod
    def _merge(pool: list[Array], following: int, row: int, entries: list[Array], level: int) -> int:
        """The lesser of what follows and one more row, where `pool` keeps it."""
        if row == NONE:
            return following
        entry = entries[row][level]
        if following != NONE:
            # What lowers nothing needs no array of its own.
            entry = numpy.minimum(entry, pool[following])
            if numpy.array_equal(entry, pool[following]):
                return following
        if not numpy.isfinite(entry).any():
            return NONE
        pool.append(entry)
        return len(pool) - 1

    def _reached(
        self,
        offsets: NDArray[numpy.int64],
        width: int,
        block: Block,
        followers: dict[Block, list[tuple[NDArray[numpy.int64], list[Array]]]],
    ) -> Iterator[NDArray[numpy.int64]]:
        """Per level, for each offset of a block the index of the least entry a follower can have."""
        for level in range(self.places.levels):
            index = followers[block][level][0]
            first, last = self._followers(offsets, width, block[1], level)
            reached = numpy.full(len(offsets), NONE, dtype=numpy.int64)
            some = first <= last
            reached[some] = index[first[some]]
            yield reached

    def _followers(
        self, offsets: NDArray[numpy.int64], width: int, next_width: int, level: int
    ) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64]]:
        """First and last place of blocks behind one at each offset whose boundary is of that level."""
        # A follower begins behind the block. Its boundary is of the level where it ends within reach of that level, and
        # beyond the reach of the level below.
        first = -(-(offsets + width) // next_width)
        if level:
            first = numpy.maximum(first, (self.places.ends[level - 1][offsets] - next_width) // next_width + 1)
        last = (self.places.ends[level][offsets] - next_width) // next_width
        return first, last

    def _add_entries(self, current: _Stage, stage: int, time_limit: float, sync_limit: float) -> None:
        """For every place of a block, the least cost of its stage and all after it by level in front and downset."""
        made: dict[tuple[int, int], int] = {}
        stages = [self._stages(index, stage, time_limit, sync_limit) for index in range(len(self.members))]
        for block, futures in current.future_at.items():
            distinct, which = numpy.unique(futures, return_inverse=True)
            rows = []
            for future in distinct.tolist():
                key = (future, block[1])
                if key not in made:
                    made[key] = NONE
                    if future != NONE:
                        usable = [each for each in stages if each.member.width == block[1] and len(each.rows)]
                        entry = self._entry(current.futures.arrays[future], usable, stage, time_limit)
                        made[key] = current.entries.add(entry)
                rows.append(made[key])
            current.entry_at[block] = numpy.array(rows, dtype=numpy.int64)[which.reshape(-1)]

    def _stages(self, index: int, stage: int, time_limit: float, sync_limit: float) -> "_Stages":
        """A member's stages that can be stage `stage` from the end."""
        member = self.members[index]
        rows = member.tables.window(stage - 1, self.stages - stage, time_limit)
        pairs, best = member.tables.pairs, self._fastest(index, stage, sync_limit)
        cost = pairs.spread(best.cost, rows.pairs)
        around = weighed_boundaries(member.times, self.weights)
        return _Stages(member, rows, best, cost, around, pairs.larger[rows.pairs], pairs.smaller[rows.pairs])

    def _entry(self, future: Array, usable: "list[_Stages]", stage: int, time_limit: float) -> Array:
        entry = numpy.full(future.shape, numpy.inf)
        levels_in = range(1) if stage == self.stages else range(len(future))
        levels_out = numpy.flatnonzero(numpy.isfinite(future).any(axis=1)).tolist()
        for each in usable:
            behind, front = each.around
            for level_out in levels_out:
                rest = future[level_out][each.smaller]
                part = each.cost + behind[level_out][each.smaller]
                for level_in in levels_in:
                    cost = part + front[level_in][each.larger]
                    each.best.settle(cost, each.rows.pairs, level_out, level_in, time_limit)
                    each.rows.lower(entry[level_in], cost + rest)
                    self.meter.count(len(each.rows))
        return entry

    def _recover(self, done: list[_Stage], time_limit: float, sync_limit: float) -> Partition | None:
        """The stages behind the least entry; among equals the first block kind and place."""
        whole = self.downsets - 1
        blocks = [block for block in done[-1].entry_at if self.tally.accepts(block[0])]
        first = self._least(done[-1], [(block, 0, len(done[-1].entry_at[block])) for block in blocks], 0, whole)
        if first is None:
            return None
        block, place = first
        larger, level_in = whole, 0
        stages = []
        for stage in range(self.stages, 0, -1):
            width = block[1]
            future = done[stage - 1].futures.arrays[int(done[stage - 1].future_at[block][place])]
            offset = place * width
            placed, level_out = self._chosen(future, offset, width, stage, (larger, level_in), time_limit, sync_limit)
            stages.append(placed)
            smaller = placed.smaller
            if stage > 1:
                reachable = []
                for follower, rows in done[stage - 2].entry_at.items():
                    if self.tally.step(follower[0], width) == block[0]:
                        begin, end = self._followers(numpy.array([offset]), width, follower[1], level_out)
                        reachable.append((follower, int(begin[0]), min(int(end[0]) + 1, len(rows))))
                following = self._least(done[stage - 2], reachable, level_out, smaller)
                assert following is not None
                block, place = following
            larger, level_in = smaller, level_out
        return Partition(tuple(stages))

    def _chosen(
        self,
        future: Array,
        offset: int,
        width: int,
        stage: int,
        front: tuple[int, int],
        time_limit: float,
        sync_limit: float,
    ) -> tuple[PlacedStage, int]:
        """The cheapest stage from the downset and level in `front`, with the level behind it."""
        stages = []
        for index, member in enumerate(self.members):
            pairs = member.tables.pairs
            row = pairs.of_downset(front[0])
            if member.width == width and row.start < row.stop:
                best = self._fastest(index, stage, sync_limit)
                around = weighed_boundaries(member.times, self.weights)
                stages.append(cheapest_stage(pairs, best, *around, front, future, time_limit, offset, index))
        _, level_out, placed = min(stages, key=lambda each: each[0])
        return placed, level_out

    @staticmethod
    def _least(
        stage: _Stage, ranges: list[tuple[Block, int, int]], level: int, downset: int
    ) -> tuple[Block, int] | None:
        """The block kind and place with the least entry in some ranges of places; None when all are infinite."""
        least, best = numpy.inf, None
        for block, begin, end in ranges:
            rows = stage.entry_at[block][begin:end]
            for row in dict.fromkeys(rows.tolist()):
                if row != NONE and stage.entries.arrays[row][level, downset] < least:
                    least = float(stage.entries.arrays[row][level, downset])
                    best = (block, begin + int(numpy.flatnonzero(rows == row)[0]))
        return best
