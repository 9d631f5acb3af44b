"""What stages may use: a candidate, with its stages and what boundaries add to them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from nest.instance import Array, Level, Link, Weights
from nest.solve.dp.choices import UNKNOWN, Boundary
from nest.solve.dp.configurations import Slots
from nest.solve.dp.pareto import Partition, PlacedStage
from nest.solve.dp.places import NONE
from nest.solve.dp.stages import StageTables


def boundary_times(cut: Array, level: Level | Link) -> Array:
    """Point-to-point seconds of each cut over one level, or between two pools (PROBLEM.md sections 1 and 8)."""
    times: Array = numpy.where(cut > 0, level.latency + cut / level.bandwidth, 0.0)
    return times


def weighed_boundaries(times: Array, weights: Weights | None) -> tuple[Array, Array]:
    """What boundaries of so many seconds behind a stage and in front of it add to the sum that is to be least."""
    return (times, times) if weights is None else (weights.returning * times, weights.arriving * times)


class Boundaries(NamedTuple):
    """Seconds that a boundary at each level adds to the stages beside it.

    Attributes:
        times: per level that occurs, seconds for each downset cut there, shape `(levels, downsets)`.
        relaxed: the cheapest over those levels, shape `(downsets,)`.
        steps: position in `times` of the level between neighbouring slots.
        levels: the level of each row of `times`.
    """

    times: Array
    relaxed: Array
    steps: NDArray[numpy.int64]
    levels: tuple[int, ...]


def boundaries(cut: Array, slots: Slots, levels: Sequence[Level]) -> Boundaries:
    """Boundary times of every level that occurs between `slots`."""
    result = slots.levels
    if not result:
        return Boundaries(numpy.zeros((1, len(cut))), numpy.zeros(len(cut)), slots.steps, (0,))
    times = numpy.array([boundary_times(cut, levels[level]) for level in result])
    return Boundaries(times, times.min(axis=0), numpy.searchsorted(result, slots.steps), result)


@frozen(eq=False, repr=False)
class Member:
    """What stages may use: a candidate.

    Attributes:
        candidate: its index in the instance.
        width: devices of its blocks.
        tables: its stages.
        times: seconds that a boundary adds, shape `(rows, downsets)`: rows for the levels inside its cluster or pool
            first, then one for the link to each other pool that is joined to it.
        levels: the level of each row; of links one that no port has; `UNKNOWN` where boundaries are at their cheapest.
        steps: row of the boundary between slot `p` and slot `p + 1`, where slots matter. Shape `(slots - 1,)`.
        links: for each member the row of the link to it, or `NONE`; of pools.
    """

    candidate: int
    width: int
    tables: StageTables
    times: Array
    levels: tuple[int, ...]
    steps: NDArray[numpy.int64] = field(factory=lambda: numpy.zeros(0, dtype=numpy.int64))
    links: tuple[int, ...] = ()

    @property
    def own(self) -> int:
        """Rows of boundaries inside its cluster or pool."""
        return len(self.times) - sum(row != NONE for row in self.links)

    @property
    def slots(self) -> int:
        """Aligned places of a replica."""
        return len(self.steps) + 1

    def without_levels(self) -> "Member":
        """The same with every boundary inside at its cheapest level."""
        less = self.own - 1
        return evolve(
            self,
            times=numpy.concatenate([self.times[: self.own].min(axis=0)[None], self.times[self.own :]]),
            levels=(UNKNOWN, *self.levels[self.own :]),
            steps=numpy.zeros_like(self.steps),
            links=tuple(row - less if row != NONE else NONE for row in self.links),
        )

    def at(self, row: int, downset: int) -> list[Boundary]:
        """The boundary at one cut, over one of the rows; none where that is `NONE`."""
        return [] if row == NONE else [Boundary(self.levels[row], float(self.times[row, downset]))]


def side_by_side(members: Sequence[Member], partition: Partition, weights: Weights | None) -> Partition:
    """The same stages and choices, each member's in its slots 0, 1, ..., with the boundaries that they have there.

    `members` have their levels.
    """
    following, front, placed = [0] * len(members), NONE, list[PlacedStage]()
    for stage, behind in zip(partition.stages, [*partition.stages[1:], None], strict=True):
        used, slot = members[stage.member], following[stage.member]
        following[stage.member] += 1
        out = entering = NONE
        if behind is not None:
            own = int(used.steps[slot]) if behind.member == stage.member else NONE
            out = own if own != NONE else used.links[behind.member]
            entering = own if own != NONE else members[behind.member].links[stage.member]
        pairs, table = used.tables.pairs, used.tables.tables[stage.choice]
        kind = numpy.array([pairs.class_of(pairs.place(stage.larger, stage.smaller))])
        around = used.at(front, stage.larger), used.at(out, stage.smaller)
        figures = (float(each[0]) for each in table.between(kind, weights, *around))
        time, cost, sync = figures
        placed.append(stage._replace(slot=slot, cost=cost, time=time, sync=sync))
        front = entering
    return Partition(tuple(placed))
