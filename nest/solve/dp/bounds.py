"""Lower bounds on the batch time: from compute alone, and from partitions with every boundary at its cheapest."""

from collections.abc import Sequence

import numpy
from attrs import frozen

from nest.instance import Array, Candidate
from nest.solve.dp.stages import StageTables


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


def compute_bounds(candidate: Candidate, stages: Array) -> tuple[Array, float]:
    """Bounds from forward and backward alone: least time of the slowest of `stages` stages, and least sum."""
    times = candidate.forward + candidate.backward
    total = float(times.sum())
    return numpy.maximum(total / stages, float(times.max())), total


def partition_bounds(tables: StageTables, boundary: Array, in_flight: Sequence[int]) -> PartitionBounds:
    """Bounds for every number of stages up to `len(in_flight)`.

    Args:
        tables: the stages' choices.
        boundary: least seconds a cut adds to either side of it, shape `(downsets,)`.
        in_flight: micro-batches in flight of stage `j` from the end, at index `j - 1`.
    """
    pairs = tables.pairs
    slowest, total, sync = (numpy.full(pairs.count, numpy.inf) for _ in range(3))
    slowest[0] = total[0] = sync[0] = 0.0
    found = numpy.full((3, len(in_flight)), numpy.inf)
    time, least_sync = numpy.empty(0), numpy.empty(0)
    for index, flying in enumerate(in_flight):
        if index == 0 or flying != in_flight[index - 1]:
            time = (tables.best(flying, numpy.inf)[0] + boundary[pairs.smaller]) + boundary[pairs.larger]
            least_sync = tables.least_sync(flying)
        slowest = pairs.least(numpy.maximum(time, slowest[pairs.smaller]))
        total = pairs.least(time + total[pairs.smaller])
        sync = pairs.least(numpy.maximum(least_sync, sync[pairs.smaller]))
        found[:, index] = slowest[-1], total[-1], sync[-1]
    return PartitionBounds(*found)


def least_peak_memory(tables: StageTables, in_flight: Sequence[int]) -> Array:
    """Least possible memory of the fullest stage, bytes, for every number of stages up to `len(in_flight)`."""
    pairs = tables.pairs
    fullest = numpy.full(pairs.count, numpy.inf)
    fullest[0] = 0.0
    found = numpy.full(len(in_flight), numpy.inf)
    memory = numpy.empty(0)
    for index, flying in enumerate(in_flight):
        if index == 0 or flying != in_flight[index - 1]:
            memory = tables.least_memory(flying)
        fullest = pairs.least(numpy.maximum(memory, fullest[pairs.smaller]))
        found[index] = fullest[-1]
    return found
