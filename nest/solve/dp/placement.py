"""Where blocks of a replica may sit, and the level of the boundary between two of them (PROBLEM.md section 3)."""

from functools import lru_cache

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.instance import Cluster


@frozen(eq=False)
class Slots:
    """The aligned places of one replica, in order along the offsets.

    The level between two slots is the largest step on the way from one to the other: each replica is a run of
    devices cut into nested groups, and the worst over replicas keeps that property.

    Attributes:
        width: devices per slot.
        steps: level of the boundary between slot `p` and slot `p + 1`, shape `(slots - 1,)`.
    """

    width: int
    steps: NDArray[numpy.int64]

    @property
    def count(self) -> int:
        """Number of slots (`K / g`)."""
        return len(self.steps) + 1

    @property
    def levels(self) -> tuple[int, ...]:
        """Levels that boundaries can have, ascending."""
        return tuple(int(level) for level in numpy.unique(self.steps))

    def level(self, first: int, second: int) -> int:
        """Level of the boundary between blocks in slots `first` < `second`."""
        return int(self.steps[first:second].max())


def slots(cluster: Cluster, width: int, replicas: int, rank_order: str) -> Slots:
    """The slots of each of `replicas` replicas with blocks of `width` devices."""
    count = cluster.size // (replicas * width)
    places = numpy.arange(count, dtype=numpy.int64)[None, :]
    replica = numpy.arange(replicas, dtype=numpy.int64)[:, None]
    if rank_order == "pp-inner":
        first = replica * (count * width) + places * width
    else:
        first = places * (width * replicas) + replica * width
    last = first + width - 1
    steps = numpy.full(max(count - 1, 0), len(cluster.levels) - 1, dtype=numpy.int64)
    for level in range(len(cluster.levels) - 2, -1, -1):
        capacity = cluster.capacities[level]
        together = (first[:, :-1] // capacity == last[:, 1:] // capacity).all(axis=0)
        steps[together] = level
    return Slots(width, steps)


def replica_size(cluster: Cluster, widest: int, replicas: int) -> int:
    """Devices of a replica whose widest block has `widest` (`K` of PROBLEM.md section 3)."""
    return widest * (cluster.size // (replicas * widest))


Shape = tuple[int, ...]


@frozen
class Sharing:
    """How ZeRO shards over devices that hold the same parameters (the `zero_degree` of a plan).

    Attributes:
        whole: shape of all devices.
        members: all devices (`z`).
        shards: shapes of the runs of neighbours that shard among themselves, each once.
        count: devices of such a run.
        replicates: shapes of the sets that hold the same shard, each once; none when one run holds all devices.
    """

    whole: Shape
    members: int
    shards: tuple[Shape, ...]
    count: int
    replicates: tuple[Shape, ...] = ()


@lru_cache(maxsize=1 << 16)
def sharing(
    cluster: Cluster, stride: int, replicas: int, ranks: tuple[int, ...], zero_degree: int | None = None
) -> Sharing:
    """How ZeRO shards a stage at offset 0 (PROBLEM.md section 4); many candidates and orders of ranks share answers.

    Args:
        cluster: the devices.
        stride: devices from one replica's block to the next one's.
        replicas: data-parallel degree `d`.
        ranks: offsets inside the block that hold the same parameters, fewer than `stride` all of them.
        zero_degree: devices of a run, which divides those that hold the same parameters unless it is the larger; None:
            all of them.
    """
    members = numpy.add.outer(numpy.arange(replicas) * stride, numpy.array(sorted(ranks))).ravel()
    whole = cluster.shape(members)
    if zero_degree is None or zero_degree >= len(members):
        return Sharing(whole, len(members), (whole,), len(members))
    runs = members.reshape(-1, zero_degree)
    return Sharing(
        whole,
        len(members),
        tuple(dict.fromkeys(cluster.shape(run) for run in runs)),
        zero_degree,
        tuple(dict.fromkeys(cluster.shape(alike) for alike in runs.T)),
    )
