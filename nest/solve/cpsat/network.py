"""Where blocks can lie and how far apart they are (PROBLEM.md sections 1 and 3), written for CP-SAT alone."""

from typing import Any

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.instance import Cluster, Instance
from nest.solve.cpsat.cases import Case

Integers = NDArray[numpy.int64]


@frozen(eq=False)
class Peers:
    """The devices that reduce the gradients of one parameter group.

    A shape says how many members a level-0 group has, how many level-0 groups a level-1 group, ..., the most of any.

    Attributes:
        shape: of all devices.
        members: all devices.
        shards: of the shard groups, each shape once; that of all devices alone without `zero_degree`.
        replicates: of the devices that hold the same shard, each shape once; none where that is a single device.
        count: devices of a shard group.
    """

    shape: tuple[int, ...]
    members: int
    shards: tuple[tuple[int, ...], ...]
    replicates: tuple[tuple[int, ...], ...]
    count: int


def replica_devices(instance: Instance, case: Case) -> int:
    """Devices of one replica (`K` of PROBLEM.md section 3)."""
    return case.widest * (instance.cluster.size // (case.replicas * case.widest))


def block_starts(instance: Instance, case: Case, offsets: Integers, widths: Integers) -> Integers:
    """First device of each block in each replica, shape `(blocks, replicas)` (PROBLEM.md section 3)."""
    replica = numpy.arange(case.replicas, dtype=numpy.int64)[None, :]
    if case.rank_order == "pp-inner":
        return replica * replica_devices(instance, case) + offsets[:, None]
    return offsets[:, None] * case.replicas + replica * widths[:, None]


def peers(instance: Instance, case: Case, candidate: int) -> tuple[Peers, ...]:
    """For each parameter group of a candidate, the devices that hold it at offset 0 (PROBLEM.md section 4)."""
    used = instance.candidates[candidate]
    starts = block_starts(instance, case, numpy.array([0]), numpy.array([used.width]))[0]
    found = []
    for group in used.state:
        members = numpy.unique(starts[:, None] + numpy.array(group.ranks, dtype=numpy.int64)[None, :])
        count = min(len(members), case.zero_degree or len(members))
        rows = members.reshape(-1, count)
        alike = _shapes(instance.cluster, rows.T) if len(rows) > 1 else ()
        whole = _shape(instance.cluster, members)
        found.append(Peers(whole, len(members), _shapes(instance.cluster, rows), alike, count))
    return tuple(found)


def _shapes(cluster: Cluster, rows: Integers) -> tuple[tuple[int, ...], ...]:
    """The different shapes of the sets of devices that are rows."""
    return tuple(dict.fromkeys(_shape(cluster, row) for row in rows))


def _shape(cluster: Cluster, members: Integers) -> tuple[int, ...]:
    shape, size, occupied = [], 1, members
    for capacity in cluster.capacities:
        parents, counts = numpy.unique(occupied * size // capacity, return_counts=True)
        shape.append(int(counts.max()))
        occupied, size = parents, capacity
    return tuple(shape)


@frozen(eq=False)
class Slots:
    """Places of blocks that are all of one width.

    Attributes:
        count: places in a replica.
        groups: by level and slot, the number of the group that a block there lies in. Two blocks are at most a level
            apart when their groups of that level are the same in every replica. Shape `(levels, count)`.
    """

    count: int
    groups: Integers

    def closest(self, levels: int) -> NDArray[numpy.bool_]:
        """Which levels some two slots are apart, shape `(levels,)`."""
        found = numpy.zeros(levels, dtype=bool)
        below = numpy.zeros(self.count, dtype=numpy.int64) + numpy.arange(self.count)
        for level, group in enumerate(self.groups):
            # Two slots in one group of this level and in different ones of the level below.
            found[level] = len(numpy.unique(group)) < len(numpy.unique(below))
            below = group
        return found


def slots(instance: Instance, case: Case, width: int) -> Slots:
    """The slots of blocks of one width.

    A block of an admissible width never straddles a group that is wide enough for it, so of two blocks either both
    lie in one such group or the boundary of one is between them; groups are therefore ranges of slots. In a group
    narrower than a block no two blocks lie.
    """
    count = replica_devices(instance, case) // width
    offsets = numpy.arange(count, dtype=numpy.int64) * width
    starts = block_starts(instance, case, offsets, numpy.full(count, width))
    groups = []
    for capacity in instance.cluster.capacities:
        if capacity < width:
            groups.append(numpy.arange(count, dtype=numpy.int64))
            continue
        homes = starts // capacity
        parted = (homes[1:] != homes[:-1]).any(axis=1)
        groups.append(numpy.concatenate([[0], numpy.cumsum(parted)]))
    return Slots(count, numpy.array(groups, dtype=numpy.int64))


@frozen(eq=False)
class Places:
    """Places of blocks of several widths.

    Attributes:
        widths: of each place.
        offsets: of each place.
        levels: the level of each two places together, the worst over the replicas. Shape `(places, places)`.
    """

    widths: Integers
    offsets: Integers
    levels: Integers

    def apart(self) -> NDArray[numpy.bool_]:
        """Which two places do not overlap, the first lying in front of the second."""
        return self.offsets[:, None] + self.widths[:, None] <= self.offsets[None, :]


def places(instance: Instance, case: Case, widths: tuple[int, ...]) -> Places:
    """Every place of a block of one of these widths."""
    room = replica_devices(instance, case)
    rows = [(width, offset) for width in widths for offset in range(0, room - width + 1, width)]
    wide, offsets = (numpy.array(column, dtype=numpy.int64) for column in zip(*rows, strict=True))
    starts = block_starts(instance, case, offsets, wide)
    ends = starts + wide[:, None] - 1
    worst = numpy.zeros((len(rows), len(rows)), dtype=numpy.int64)
    for capacity in instance.cluster.capacities[:-1]:
        low = numpy.minimum(starts[:, None, :], starts[None, :, :]) // capacity
        high = numpy.maximum(ends[:, None, :], ends[None, :, :]) // capacity
        worst += (low != high).any(axis=2)
    return Places(wide, offsets, worst)


def point_to_point(cluster: Cluster, size: Any, level: int) -> Any:
    """Seconds to send `size` bytes over a link of `level`, elementwise (PROBLEM.md section 1)."""
    link = cluster.levels[level]
    return numpy.where(numpy.asarray(size) > 0, link.latency + numpy.asarray(size) / link.bandwidth, 0.0)
