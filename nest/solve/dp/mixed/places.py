"""Where blocks of different widths may sit in a replica, and the level between two of them (PROBLEM.md section 3).

The level of a boundary is that of the devices from the first of the block in front to the last of the block behind,
worst over the replicas. It depends on where the former starts and the latter ends alone, with both rank orders: with
`dp-inner` the spans of the replicas overlap, and together they are the span of all blocks of both stages.
"""

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.instance import Cluster


@frozen(eq=False)
class Places:
    """The devices of one replica.

    Attributes:
        size: how many there are (`K`).
        ends: for each level and offset, the furthest end of a span that starts there and does not exceed the level,
            shape `(levels, size)`.
    """

    size: int
    ends: NDArray[numpy.int64]

    @property
    def levels(self) -> int:
        """Number of levels."""
        return len(self.ends)

    def level(self, start: int, end: int) -> int:
        """Level of the devices from offset `start` up to, not including, `end`."""
        return int(numpy.flatnonzero(self.ends[:, start] >= end)[0])

    def without_levels(self) -> "Places":
        """The same devices when all links are alike."""
        return Places(self.size, numpy.full((1, self.size), self.size, dtype=numpy.int64))


def places(cluster: Cluster, size: int, replicas: int, rank_order: str) -> Places:
    """The devices of each of `replicas` replicas of `size` devices."""
    offsets = numpy.arange(size, dtype=numpy.int64)
    ends = []
    for capacity in cluster.capacities:
        if rank_order == "pp-inner":
            begin = size * numpy.arange(replicas, dtype=numpy.int64)[:, None]
            end = (((begin + offsets) // capacity + 1) * capacity - begin).min(axis=0)
        else:
            end = (offsets * replicas // capacity + 1) * capacity // replicas
        ends.append(numpy.minimum(end, size))
    return Places(size, numpy.array(ends))
