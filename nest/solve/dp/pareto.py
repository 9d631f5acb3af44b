"""The trade between the slowest stage, the sum of stages and synchronisation, walked point by point.

The batch takes `A * max t + B * sum t + max y` (PROBLEM.md section 4). The recurrence minimises the sum under limits on
the other two, so limits are tightened from one optimum to the next until no plan left can win.
"""

import math
from collections.abc import Callable

from attrs import frozen

from nest.solve.dp.recurrence import Partition

TOLERANCE = 1e-12
"""Relative difference below which two batch times count as equal (PROBLEM.md section 5)."""


@frozen
class Floor:
    """Lower bounds of the three terms, seconds."""

    largest_time: float
    total_time: float
    largest_sync: float


@frozen
class Objective:
    """Weights of a schedule.

    Attributes:
        slowest: `A`, weight of the slowest stage.
        total: `B`, weight of the sum of stages.
    """

    slowest: float
    total: float

    def value(self, largest_time: float, total_time: float, largest_sync: float) -> float:
        """Batch time, seconds."""
        return self.slowest * largest_time + self.total * total_time + largest_sync

    def of(self, partition: Partition) -> float:
        """Batch time of a partition, seconds."""
        return self.value(partition.largest_time, partition.total_time, partition.largest_sync)

    def weighted(self, partition: Partition) -> float:
        """Batch time of a partition without synchronisation, seconds."""
        return self.slowest * partition.largest_time + self.total * partition.total_time

    def bound(self, floor: Floor) -> float:
        """Batch time no partition above `floor` can beat, seconds."""
        return self.value(floor.largest_time, floor.total_time, floor.largest_sync)


Run = Callable[[float, float], Partition | None]


def walk(run: Run, objective: Objective, floor: Floor, limit: float) -> tuple[float, Partition | None]:
    """The best partition that beats `limit`, exactly.

    Args:
        run: partition of least total time under limits on the largest time and on synchronisation.
        objective: weights of the three terms.
        floor: lower bounds of the three terms.
        limit: batch time to beat, seconds.

    Returns:
        Its batch time and the partition; `limit` and None when none beats it.
    """
    best_value, best = limit, None
    sync_limit = math.inf
    first = run(floor.largest_time * (1 + TOLERANCE), math.inf)
    if first is not None and objective.of(first) < best_value:
        best_value, best = objective.of(first), first
    while True:
        value, found, lightest = _walk_times(run, objective, floor, best_value, sync_limit)
        if found is not None:
            best_value, best = value, found
        if lightest is None:
            return best_value, best
        sync_limit = min(best_value - objective.weighted(lightest), lightest.largest_sync * (1 - TOLERANCE))
        if sync_limit <= floor.largest_sync * (1 - TOLERANCE):
            return best_value, best


def _walk_times(
    run: Run, objective: Objective, floor: Floor, limit: float, sync_limit: float
) -> tuple[float, Partition | None, Partition | None]:
    """The best partition within `sync_limit` that beats `limit`.

    Returns:
        Its batch time and the partition, and the partition within `sync_limit` of least `A * max t + B * sum t`, so
        that whatever else beats `limit` must synchronise faster than it; None when nothing else can.
    """
    best_value, best = limit, None
    lightest: Partition | None = None
    time_limit = math.inf
    while True:
        rest = objective.total * floor.total_time + floor.largest_sync
        if objective.slowest > 0 and math.isfinite(best_value):
            time_limit = min(time_limit, (best_value - rest) / objective.slowest * (1 + TOLERANCE))
        partition = run(time_limit, sync_limit)
        if partition is None:
            break
        weight = objective.weighted(partition)
        if lightest is None or weight < objective.weighted(lightest):
            lightest = partition
        if weight + partition.largest_sync < best_value:
            best_value, best = weight + partition.largest_sync, partition
        bound = objective.slowest * floor.largest_time + objective.total * partition.total_time
        if bound >= objective.weighted(lightest) or bound + floor.largest_sync >= best_value:
            break
        time_limit = partition.largest_time * (1 - TOLERANCE)
    if lightest is not None and objective.weighted(lightest) + floor.largest_sync >= best_value:
        lightest = None
    return best_value, best, lightest
