"""Members: a candidate with its stages and boundary times."""

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
    """Parts of the minimised sum from boundaries of so many seconds behind a stage and in front of it."""
    return (times, times) if weights is None else (weights.returning * times, weights.arriving * times)


class Boundaries(NamedTuple):
    """Seconds that a boundary at each level adds to its neighbouring stages."""

    times: Array  # By occurring level and downset, shape `(levels, downsets)`.
    relaxed: Array  # Cheapest over those levels, shape `(downsets,)`.
    steps: NDArray[numpy.int64]  # Row in `times` of the level between neighbouring slots.
    levels: tuple[int, ...]  # Level of each row of `times`.


def boundaries(cut: Array, slots: Slots, levels: Sequence[Level]) -> Boundaries:
    """Boundary times of every level between `slots`."""
    result = slots.levels
    if not result:
        return Boundaries(numpy.zeros((1, len(cut))), numpy.zeros(len(cut)), slots.steps, (0,))
    times = numpy.array([boundary_times(cut, levels[level]) for level in result])
    return Boundaries(times, times.min(axis=0), numpy.searchsorted(result, slots.steps), result)


@frozen(eq=False, repr=False)
class Member:
    """A candidate that stages may use."""

    candidate: int  # Index.
    width: int  # Devices of its blocks.
    tables: StageTables  # Its stages.
    # Seconds that a boundary adds, shape `(rows, downsets)`: rows for levels inside its cluster or pool, then one for
    # the link to each connected pool.
    times: Array
    levels: tuple[int, ...]  # Level of each row; for links one without port; `UNKNOWN` for the cheapest boundaries.
    # Row of the boundary between slot `p` and slot `p + 1`, if slots matter. Shape `(slots - 1,)`.
    steps: NDArray[numpy.int64] = field(factory=lambda: numpy.zeros(0, dtype=numpy.int64))
    links: tuple[int, ...] = ()  # For each member the row of the link to it, or `NONE`; of pools.

    @property
    def own(self) -> int:
        """Rows of boundaries inside its cluster or pool."""
        return len(self.times) - sum(row != NONE for row in self.links)

    @property
    def slots(self) -> int:
        """Aligned places of a replica."""
        return len(self.steps) + 1

    def without_levels(self) -> "Member":
        """Same with every inner boundary at its cheapest level."""
        less = self.own - 1
        return evolve(
            self,
            times=numpy.concatenate([self.times[: self.own].min(axis=0)[None], self.times[self.own :]]),
            levels=(UNKNOWN, *self.levels[self.own :]),
            steps=numpy.zeros_like(self.steps),
            links=tuple(row - less if row != NONE else NONE for row in self.links),
        )

    def at(self, row: int, downset: int) -> list[Boundary]:
        """Boundary at one cut over a row; empty for `NONE`."""
        return [] if row == NONE else [Boundary(self.levels[row], float(self.times[row, downset]))]


def side_by_side(members: Sequence[Member], partition: Partition, weights: Weights | None) -> Partition:
    """Same stages and choices, each member's in slots 0, 1, ..., with the boundary times there."""
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
