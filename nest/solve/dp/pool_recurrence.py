"""The recurrence for stages in several pools, with the devices left in each in place of those left at all.

As in `nest.solve.dp.recurrence`, stages are counted from the end and an entry is the least sum of stage times under
limits on each stage's time and gradient reduction. How many stages each pool has is decided; an entry knows how many of
them are behind, in which pool its first stage lies, and where in each pool the next block may. Where all slots of a
pool are alike its blocks lie side by side; else a block may lie as many slots further on as the pool has to spare.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy
from attrs import define, evolve, field, frozen
from numpy.typing import NDArray

from nest.instance import Array, Weights
from nest.solve.dp.choices import UNKNOWN, Boundary
from nest.solve.dp.fastest import Fastest, cheapest
from nest.solve.dp.pareto import Partition, PlacedStage
from nest.solve.dp.recurrence import cheapest_stage, weighed_boundaries
from nest.solve.dp.stages import StageTables
from nest.solve.search import Meter

NONE = -1
"""Row of a link that there is not, or the place of a count of stages that there is not."""

BLOCK = 2**20
"""Numbers that are worked out at once, so that they stay in caches."""

Counts = tuple[int, ...]
"""Stages in each pool."""


@frozen(eq=False, repr=False)
class PoolMember:
    """The stages of one pool: those of a candidate.

    Attributes:
        candidate: its index in the instance.
        width: devices of its blocks.
        tables: its stages.
        times: seconds that a boundary adds, shape `(rows, downsets)`: rows for the levels between its own slots first,
            then one for the link to each other pool that is joined to it.
        levels: the level of each row; of links one that no port has; `UNKNOWN` where boundaries are at their cheapest.
        links: for each member the row of the link to it, or `NONE`.
        steps: row of the boundary between slot `p` and slot `p + 1`, shape `(slots - 1,)`.
    """

    candidate: int
    width: int
    tables: StageTables
    times: Array
    levels: tuple[int, ...]
    links: tuple[int, ...]
    steps: NDArray[numpy.int64]

    @property
    def own(self) -> int:
        """Rows of boundaries inside the pool."""
        return len(self.times) - sum(row != NONE for row in self.links)

    @property
    def slots(self) -> int:
        """Aligned places of a replica in the pool."""
        return len(self.steps) + 1

    @property
    def alike(self) -> bool:
        """Whether it does not matter which slots its blocks have."""
        return self.own == 1

    def without_levels(self) -> "PoolMember":
        """The same with every boundary inside the pool at its cheapest level."""
        if self.alike:
            return self
        times = numpy.concatenate([self.times[: self.own].min(axis=0)[None], self.times[self.own :]])
        less = self.own - 1
        return evolve(
            self,
            times=times,
            levels=(UNKNOWN, *self.levels[self.own :]),
            links=tuple(row - less if row != NONE else NONE for row in self.links),
            steps=numpy.zeros_like(self.steps),
        )


@frozen
class Grid:
    """The numbers of stages in each pool, ascending, by how many they are together.

    Attributes:
        most: stages in each pool at most.
        stages: at most together.
    """

    most: Counts
    stages: int
    rows: tuple[tuple[Counts, ...], ...] = field(init=False)
    _known: dict[tuple[int, int], NDArray[numpy.int64]] = field(factory=dict, init=False, eq=False, repr=False)

    @rows.default
    def _by_total(self) -> tuple[tuple[Counts, ...], ...]:
        rows: list[list[Counts]] = [[] for _ in range(self.stages + 1)]
        # The last pool has what the others leave.
        for first in product(*(range(most + 1) for most in self.most[:-1])):
            used = sum(first)
            for last in range(max(0, min(self.most[-1], self.stages - used) + 1)):
                rows[used + last].append((*first, last))
        return tuple(map(tuple, rows))

    def before(self, stages: int, member: int) -> NDArray[numpy.int64]:
        """Of each count of so many stages, where the one with a stage of `member` less is; `NONE`: there is none."""
        if (stages, member) not in self._known:
            place = {counts: index for index, counts in enumerate(self.rows[stages - 1])}
            less = (
                (*counts[:member], counts[member] - 1, *counts[member + 1 :]) if counts[member] else None
                for counts in self.rows[stages]
            )
            places = [NONE if each is None else place[each] for each in less]
            self._known[stages, member] = numpy.array(places, dtype=numpy.int64)
        return self._known[stages, member]


@define(eq=False, repr=False)
class PoolRecurrence:
    """The recurrence for fixed numbers of stages in each pool.

    Attributes:
        members: the pools.
        counts: stages of each, 1 or more.
        in_flight: micro-batches in flight of stage `j` from the end, at index `j - 1`.
        meter: counts the work.
        weights: as of `nest.solve.dp.recurrence.Recurrence`.
    """

    members: Sequence[PoolMember]
    counts: Counts
    in_flight: tuple[float, ...]
    meter: Meter
    weights: Weights | None = None
    _grid: Grid = field(init=False)
    _spare: tuple[int, ...] = field(init=False)
    _best: dict[tuple[int, float], Fastest] = field(factory=dict, init=False)
    _best_limit: float = field(default=-1.0, init=False)

    def __attrs_post_init__(self) -> None:
        self._grid = Grid(self.counts, self.stages)
        self._spare = tuple(
            0 if member.alike else member.slots - count for member, count in zip(self.members, self.counts, strict=True)
        )

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.in_flight)

    @property
    def downsets(self) -> int:
        """Number of downsets."""
        return self.members[0].tables.pairs.count

    @property
    def bytes(self) -> int:
        """Memory that entries take."""
        rows = sum(len(member.times) for member in self.members)
        places = int(numpy.prod([spare + 1 for spare in self._spare]))
        return 8 * rows * places * self.downsets * sum(map(len, self._grid.rows[1:]))

    def run(self, time_limit: float, sync_limit: float) -> Partition | None:
        """A partition and placement with the least sum of stage times, or None when none keeps the limits.

        Args:
            time_limit: most seconds any stage may take per micro-batch.
            sync_limit: most seconds any stage may synchronise per batch.
        """
        entries: list[list[Array]] = [[]]
        for stage in range(1, self.stages + 1):
            entries.append([self._entries(entries, stage, q, time_limit, sync_limit) for q in range(len(self.members))])
            if not any(numpy.isfinite(each).any() for each in entries[-1]):
                return None
        if not any(numpy.isfinite(each[..., 0, -1]).any() for each in entries[-1]):
            return None
        return self._recover(entries, time_limit, sync_limit)

    def _shape(self, stage: int, member: int) -> tuple[int, ...]:
        """Of entries: counts, places in each pool, rows of the boundary in front, downsets."""
        places = (spare + 1 for spare in self._spare)
        return (len(self._grid.rows[stage]), *places, len(self.members[member].times), self.downsets)

    def _fastest(self, member: int, stage: int, sync_limit: float) -> Fastest:
        """Choices of a member's stages that add least to the sum, remembered while the limit stays."""
        if sync_limit != self._best_limit:
            self._best.clear()
            self._best_limit = sync_limit
        used, flying = self.members[member], self.in_flight[stage - 1]
        key = (member, used.tables.same_fits(flying))
        if key not in self._best:
            self._best[key] = cheapest(used.tables, flying, sync_limit, used.times, used.levels, self.weights)
        return self._best[key]

    def _future(self, entries: list[list[Array]], stage: int, member: int) -> Array:
        """Least cost of what follows a stage of `member`, in the shape of entries; rows are of the boundary behind."""
        future = numpy.full(self._shape(stage, member), numpy.inf)
        counts = self._grid.rows[stage]
        if stage == 1:
            alone = next((place for place, each in enumerate(counts) if each[member]), None)
            if alone is not None:  # Other pools have no block yet: all their slots are free.
                places = (slice(None) if q == member else spare for q, spare in enumerate(self._spare))
                future[(alone, *places, 0, 0)] = 0.0
            return future
        before = self._grid.before(stage, member)
        some = numpy.flatnonzero(before != NONE)
        for other, row in enumerate(self.members[member].links):
            if row != NONE:
                back = self.members[other].links[member]
                later = entries[stage - 1][other][before[some]][..., back, :]
                future[some, ..., row, :] = _from_here_on(later, 1 + member)
        own, others = entries[stage - 1][member], (slice(None),) * member
        for place in some.tolist():
            if counts[place][member] > 1:
                later, into = own[before[place]], future[place]
                for here, row, there in self._neighbours(member, counts[place][member]):
                    into[(*others, here, ..., row, slice(None))] = later[(*others, there, ..., row, slice(None))].min(
                        axis=member
                    )
        return future

    def _neighbours(self, member: int, number: int) -> Iterator[tuple[int, int, slice]]:
        """Places of a pool's block `number` from the end, with a row and the places of the block behind over that."""
        spare, steps = self._spare[member], self.members[member].steps
        first = self.counts[member] - number
        if not spare:
            # Side by side, from the first slot on.
            yield 0, int(steps[first]), slice(0, 1)
            return
        for here in range(spare + 1):
            level, begin = NONE, here
            for there in range(here, spare + 1):
                reached = max(level, int(steps[first + here : first + 1 + there].max()))
                if reached != level and level != NONE:
                    yield here, level, slice(begin, there)
                    begin = there
                level = reached
            yield here, level, slice(begin, spare + 1)

    def _entries(
        self, entries: list[list[Array]], stage: int, member: int, time_limit: float, sync_limit: float
    ) -> Array:
        """Least cost of a stage of `member` and all after it, by the row of the boundary in front of it."""
        future = self._future(entries, stage, member)
        result = numpy.full(future.shape, numpy.inf)
        used = self.members[member]
        rows = used.tables.window(stage - 1, self.stages - stage, time_limit)
        if not len(rows):
            return result
        best, pairs = self._fastest(member, stage, sync_limit), used.tables.pairs
        cost_alone = pairs.spread(best.cost, rows.pairs)
        larger, smaller = pairs.larger[rows.pairs], pairs.smaller[rows.pairs]
        behind, front = weighed_boundaries(used.times, self.weights)
        after, into = (each.reshape(-1, *each.shape[-2:]) for each in (future, result))
        for row_out in range(len(used.times)):
            alive = numpy.flatnonzero(numpy.isfinite(after[:, row_out]).any(axis=1))
            if not len(alive):
                continue
            part = cost_alone + behind[row_out][smaller]
            for row_in in range(1 if stage == self.stages else len(used.times)):
                cost = part + front[row_in][larger]
                # The cheapest choice does: what a stage chooses changes nothing for the others.
                best.settle(cost, rows.pairs, row_out, row_in, time_limit)
                for some in _blocks(alive, len(rows)):
                    total = cost + after[some, row_out][:, smaller]
                    least = numpy.minimum.reduceat(total, rows.starts, axis=1)
                    where = numpy.ix_(some, numpy.array([row_in]), rows.heads)
                    into[where] = numpy.minimum(into[where], least[:, None])
                self.meter.count(len(alive) * len(rows))
        return result

    def _recover(self, entries: list[list[Array]], time_limit: float, sync_limit: float) -> Partition:
        """The stages behind the least entry; among equals the first pool, the first slots, the lowest row."""
        last = [each[..., 0, -1] for each in entries[-1]]
        member = int(numpy.argmin([each.min() for each in last]))
        state = [int(i) for i in numpy.unravel_index(last[member].argmin(), last[member].shape)]
        larger, row_in = self.downsets - 1, 0
        stages = []
        for stage in range(self.stages, 0, -1):
            used, best = self.members[member], self._fastest(member, stage, sync_limit)
            future = self._future(entries, stage, member)[tuple(state)]
            number = self._grid.rows[stage][state[0]][member]
            slot = self.counts[member] - number + state[1 + member]
            around = weighed_boundaries(used.times, self.weights)
            _, row_out, placed = cheapest_stage(
                used.tables.pairs, best, *around, (larger, row_in), future, time_limit, slot, member
            )
            stages.append(placed)
            larger = placed.smaller
            if stage > 1:
                before = int(self._grid.before(stage, member)[state[0]])
                other, row_in, there = self._follower(member, number, state[1 + member], row_out)
                state[0] = before
                column: Any = (*state[: 1 + member], there, *state[2 + member :], row_in, larger)
                following = entries[stage - 1][other][column]
                state[1 + member] = there.start + int(following.argmin())
                member = other
        return Partition(tuple(stages))

    def _follower(self, member: int, number: int, place: int, row: int) -> tuple[int, int, slice]:
        """Which member follows over a row of boundaries, the row in front of it, and where this pool goes on."""
        for other, link in enumerate(self.members[member].links):
            if link == row:
                return other, self.members[other].links[member], slice(place, None)
        there = next(each for here, own, each in self._neighbours(member, number) if (here, own) == (place, row))
        return member, row, there


def side_by_side(members: Sequence[PoolMember], partition: Partition, weights: Weights | None) -> Partition:
    """The same stages and choices, each pool's in its slots 0, 1, ..., with the boundaries that they have there.

    `members` have their levels.
    """
    following = [0] * len(members)
    placed: list[PlacedStage] = []
    rows: list[int] = []
    for stage, behind in zip(partition.stages, [*partition.stages[1:], None], strict=True):
        used, slot = members[stage.member], following[stage.member]
        following[stage.member] += 1
        if behind is not None:
            rows.append(int(used.steps[slot]) if behind.member == stage.member else used.links[behind.member])
        placed.append(stage._replace(slot=slot))
    return Partition(tuple(_between(members, placed, rows, index, weights) for index in range(len(placed))))


def _between(
    members: Sequence[PoolMember],
    stages: Sequence[PlacedStage],
    rows: Sequence[int],
    index: int,
    weights: Weights | None,
) -> PlacedStage:
    """One of these stages with what it costs between its boundaries, of which `rows` are behind each."""
    stage = stages[index]
    used = members[stage.member]
    pairs = used.tables.pairs
    row = pairs.of_downset(stage.larger)
    kind = pairs.class_of(row.start + int(numpy.searchsorted(pairs.smaller[row], stage.smaller)))
    front: list[Boundary] = []
    if index:
        other = stages[index - 1].member
        at = rows[index - 1] if other == stage.member else used.links[other]
        front = [Boundary(used.levels[at], float(used.times[at, stage.larger]))]
    behind = []
    if index < len(stages) - 1:
        behind = [Boundary(used.levels[rows[index]], float(used.times[rows[index], stage.smaller]))]
    time, cost, sync = used.tables.tables[stage.choice].between(numpy.array([kind]), weights, front, behind)
    return stage._replace(cost=float(cost[0]), time=float(time[0]), sync=float(sync[0]))


def _from_here_on(values: Array, axis: int) -> Array:
    """The least of each value and those behind it along an axis."""
    if values.shape[axis] == 1:
        return values
    return numpy.flip(numpy.minimum.accumulate(numpy.flip(values, axis), axis=axis), axis)


def _blocks(indices: NDArray[numpy.int64], width: int) -> Iterator[NDArray[numpy.int64]]:
    """The indices, in parts of which rows of so many numbers stay small."""
    size = max(BLOCK // width, 1)
    for first in range(0, len(indices), size):
        yield indices[first : first + size]
