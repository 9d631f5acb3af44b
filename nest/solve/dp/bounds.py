"""Lower bounds on what stages take, from partitions with every boundary at its cheapest level."""

from collections.abc import Sequence

import numpy
from attrs import frozen

from nest.instance import Array
from nest.solve.dp.choices import UNKNOWN
from nest.solve.dp.pareto import Floor
from nest.solve.dp.stages import StageTables, fastest
from nest.solve.search import Meter


@frozen(eq=False)
class PartitionBounds:
    """Three minima over all partitions into `s` stages, each on its own; index `s - 1`.

    Attributes:
        largest_time: of the slowest stage's seconds per micro-batch.
        total_time: of the sum of the stages' seconds per micro-batch.
        largest_sync: of the longest synchronisation, seconds per batch.
    """

    largest_time: Array
    total_time: Array
    largest_sync: Array

    def floor(self, stages: int) -> Floor:
        """The three for so many stages."""
        return Floor(*(float(each[stages - 1]) for each in (self.largest_time, self.total_time, self.largest_sync)))


def partition_bounds(
    tables: StageTables, boundary: Array, in_flight: Sequence[float], time_limit: float, meter: Meter
) -> PartitionBounds:
    """Bounds for every number of stages up to `len(in_flight)`, for stages of at most `time_limit` seconds.

    Args:
        tables: the stages' choices.
        boundary: least seconds a cut adds to either side of it, shape `(downsets,)`.
        in_flight: micro-batches in flight of stage `j` from the end, at index `j - 1`.
        time_limit: most seconds a stage may take per micro-batch.
        meter: counts the work.
    """
    pairs = tables.pairs
    if not len(pairs):
        return PartitionBounds(*numpy.full((3, len(in_flight)), numpy.inf))
    around = boundary[pairs.smaller] + boundary[pairs.larger]
    before = numpy.full((3, pairs.count), numpy.inf)
    before[:, 0] = 0.0
    found = numpy.full((3, len(in_flight)), numpy.inf)
    time, least_sync, fits = numpy.empty(0), numpy.empty(0), -numpy.inf
    for index, flying in enumerate(in_flight):
        if fits != (fits := tables.same_fits(flying)):
            time, least_sync = least_of_pairs(tables, flying, boundary, around)
        rows = tables.window(index, len(in_flight) - index - 1, time_limit)
        smaller = pairs.smaller[rows.pairs]
        after = numpy.full((3, pairs.count), numpy.inf)
        rest = before[:, smaller]
        rows.lower(after[0], numpy.maximum(time[rows.pairs], rest[0]))
        rows.lower(after[1], time[rows.pairs] + rest[1])
        rows.lower(after[2], numpy.maximum(least_sync[rows.pairs], rest[2]))
        found[:, index] = after[:, -1]
        before = after
        meter.count(len(rows))
    return PartitionBounds(*found)


def least_of_pairs(tables: StageTables, in_flight: float, boundary: Array, around: Array) -> tuple[Array, Array]:
    """Least seconds per micro-batch and, by themselves, once per batch of every stage, shape `(pairs,)` each.

    `boundary` is as in `partition_bounds`, `around` that of both cuts of each stage.
    """
    pairs = tables.pairs
    time, sync = (pairs.spread(each) for each in tables.least(in_flight))
    time = time + around
    if tables.ports:
        fastest(tables, in_flight, numpy.inf, boundary[None], (UNKNOWN,)).settle(time, slice(0, len(pairs)), 0, 0)
    return time, sync


def least_peak_memory(tables: StageTables, in_flight: Sequence[float]) -> Array:
    """Least possible memory of the fullest stage, bytes, for every number of stages up to `len(in_flight)`."""
    pairs = tables.pairs
    fullest = numpy.full(pairs.count, numpy.inf)
    fullest[0] = 0.0
    found = numpy.full(len(in_flight), numpy.inf)
    memory = numpy.empty(0)
    for index, flying in enumerate(in_flight):
        if index == 0 or flying != in_flight[index - 1]:
            memory = pairs.spread(tables.least_memory(flying))
        fullest = pairs.least(numpy.maximum(memory, fullest[pairs.smaller]))
        found[index] = fullest[-1]
    return found
