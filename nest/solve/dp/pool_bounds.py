"""Lower bounds on plans in several pools, for each number of stages of each pool."""

from collections.abc import Callable, Hashable, Sequence
from itertools import product

import numpy
from attrs import field, frozen
from numpy.typing import NDArray

from nest.instance import Array
from nest.reuse import once
from nest.solve.dp.bounds import LeastTimes
from nest.solve.dp.pairs import Rows
from nest.solve.dp.places import NONE, Counts
from nest.solve.dp.stages import StageTables
from nest.solve.search import Meter

Combine = Callable[[Array, Array], Array]  # Combine a stage with those behind it: the larger of both, or their sum.


@frozen
class Grid:
    """Numbers of stages in each pool, ascending, by total."""

    most: Counts  # Stages in each pool.
    stages: int  # In total.
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
        """For each split of so many stages, index of the one with a stage of `member` less; `NONE`: there is none."""
        if (stages, member) not in self._known:
            place = {counts: index for index, counts in enumerate(self.rows[stages - 1])}
            less = (
                (*counts[:member], counts[member] - 1, *counts[member + 1 :]) if counts[member] else None
                for counts in self.rows[stages]
            )
            places = [NONE if each is None else place[each] for each in less]
            self._known[stages, member] = numpy.array(places, dtype=numpy.int64)
        return self._known[stages, member]


def term_bounds(
    members: Sequence[LeastTimes], most: Counts, in_flight: Sequence[float], time_limit: float, meter: Meter
) -> dict[Counts, tuple[float, ...]]:
    """`nest.solve.dp.bounds.partition_bounds` for each number of stages in each pool, at least 1 in all.

    Args:
        members: least times of the stages of each pool.
        most: most stages in each pool.
        in_flight: micro-batches in flight of stage `j` from the end, at index `j - 1`.
        time_limit: most seconds of a stage per micro-batch.
    """
    terms = 6 if members[0].tables.parted else 3
    combines: list[Combine] = [numpy.maximum, *[numpy.add] * (terms - 2), numpy.maximum]

    def values(member: int, stage: int) -> tuple[Rows, list[Array]]:
        used = members[member]
        rows = used.tables.window(stage - 1, len(in_flight) - stage, time_limit)
        return rows, [each[rows.pairs] for each in used.of(in_flight[stage - 1])] if len(rows) else []

    def of_slowest(member: int, stage: int) -> tuple[Rows, list[Array]]:
        rows, taken = values(member, stage)
        return rows, taken[:1]

    smaller, downsets = [member.tables.pairs.smaller for member in members], members[0].tables.pairs.count
    grid = Grid(most, len(in_flight))
    # Mostly no stages fit together; one term shows that, and the others are skipped.
    if not _least(grid, len(in_flight), smaller, downsets, combines[:1], of_slowest, meter):
        return {}
    return _least(grid, len(in_flight), smaller, downsets, combines, values, meter)


def least_excess(
    every: Sequence[StageTables], capacity: Sequence[float], most: Counts, in_flight: Sequence[float], meter: Meter
) -> dict[Counts, tuple[float, ...]]:
    """Least bytes by which the worst stage exceeds its device, by stages of each pool; below 0 if all fit.

    Args:
        every: tables of all stages of each pool, fitting or not.
        capacity: bytes of a device of each pool.
        most: most stages in each pool.
        in_flight: micro-batches in flight of stage `j` from the end, at index `j - 1`.
    """
    known: dict[Hashable, Array] = {}

    def excess(member: int, flying: float) -> Array:
        tables = every[member]
        return once(
            known, (member, flying), lambda: tables.pairs.spread(tables.least_memory(flying)) - capacity[member]
        )

    def values(member: int, stage: int) -> tuple[Rows, list[Array]]:
        pairs = every[member].pairs
        return pairs.rows(0, pairs.count - 1), [excess(member, in_flight[stage - 1])]

    smaller, grid = [tables.pairs.smaller for tables in every], Grid(most, len(in_flight))
    return _least(grid, len(in_flight), smaller, every[0].pairs.count, [numpy.maximum], values, meter, start=-numpy.inf)


def _least(
    grid: Grid,
    stages: int,
    smaller: Sequence[NDArray[numpy.int32]],
    downsets: int,
    combines: Sequence[Combine],
    values: Callable[[int, int], tuple[Rows, list[Array]]],
    meter: Meter,
    start: float = 0.0,
) -> dict[Counts, tuple[float, ...]]:
    """Least value of each term over all partitions, separately.

    `values` has the rows of stages of a member so many stages from the end, with the terms of each; `start` is the
    value of no stages.
    """
    before = numpy.full((len(combines), 1, downsets), numpy.inf)
    before[:, 0, 0] = start
    found: dict[Counts, tuple[float, ...]] = {}
    for stage in range(1, stages + 1):
        counts = grid.rows[stage]
        after = numpy.full((len(combines), len(counts), downsets), numpy.inf)
        for member, below in enumerate(smaller):
            places = grid.before(stage, member)
            some = numpy.flatnonzero(places != NONE)
            some = some[numpy.isfinite(before[-1, places[some]]).any(axis=1) | (before[-1, places[some], 0] == start)]
            rows, taken = values(member, stage) if len(some) else (None, [])
            if rows is None or not len(rows):
                continue
            for term, (combine, own) in enumerate(zip(combines, taken, strict=True)):
                rest = before[term][places[some]][:, below[rows.pairs]]
                least = numpy.minimum.reduceat(combine(own, rest), rows.starts, axis=1)
                where = numpy.ix_(some, rows.heads)
                after[term][where] = numpy.minimum(after[term][where], least)
            meter.count(len(some) * len(rows))
        for place, each in enumerate(counts):
            if all(each) and numpy.isfinite(after[:, place, -1]).all():
                found[each] = tuple(after[:, place, -1].tolist())
        before = after
    return found
