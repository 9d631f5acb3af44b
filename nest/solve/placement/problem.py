"""Blocks to be assigned to the devices of any network: the question in numbers, and what a placement takes."""

from collections.abc import Iterable, Iterator, Sequence

import numpy
from attrs import frozen
from numpy.typing import NDArray

Placement = tuple[tuple[tuple[int, ...], ...], ...]
"""For each replica and stage the devices of the block, in the order of their ranks."""

Places = Sequence[Sequence[Sequence[int]]]
"""The same, for reading."""

Block = tuple[int, int]
"""A replica and a stage."""

Mask = NDArray[numpy.bool_]


@frozen(eq=False)
class Link:
    """Communication between blocks, which takes as long as the worst level between their devices says.

    Attributes:
        groups: sets of blocks; what counts is every pair of devices in different blocks of one set.
        inside: whether pairs of devices inside one block count too.
        seconds: if that is the worst level, for each level of the matrix.
        stages: the stages to whose time per micro-batch the seconds are added.
        sync: the stage to whose seconds once per batch they are added; None: none.
        aligned: sets of devices for as many blocks as the only group has: where its blocks, in any order, occupy one
            such set, `aligned_seconds` hold if they are less.
        aligned_seconds: see above.
    """

    groups: tuple[tuple[Block, ...], ...]
    inside: bool
    seconds: tuple[float, ...]
    stages: tuple[int, ...]
    sync: int | None = None
    aligned: tuple[tuple[tuple[int, ...], ...], ...] = ()
    aligned_seconds: float = 0.0


@frozen(eq=False)
class EmbeddingProblem:
    """One plan's blocks, and the devices they may be assigned to.

    Attributes:
        level: level of every two devices, symmetric; -1 on the diagonal.
        replicas: `d`.
        widths: devices of a block of each stage (`g_i`).
        leaf: ranks of a block that lie in one innermost group: `leaf` neighbouring ones, or the whole block if smaller.
        meeting: for every two leaves of a block, by number, where they meet: an index into `compact`; for a leaf and
            itself 0.
        compact: for each such index the pairs of devices that may meet there: no slower than collectives inside the
            block were priced with.
        links: what the placement decides.
        times: seconds per micro-batch that no placement changes, of each stage.
        syncs: seconds once per batch that no placement changes, of each stage.
        weights: `(A, B)` of the schedule (PROBLEM.md section 4).
        start: a placement that is allowed.
        least_times: seconds per micro-batch that ports take at least, of each stage; empty where there are none.
        least_syncs: the same once per batch.
    """

    level: NDArray[numpy.int8]
    replicas: int
    widths: tuple[int, ...]
    leaf: int
    meeting: NDArray[numpy.int64]
    compact: tuple[Mask, ...]
    links: tuple[Link, ...]
    times: tuple[float, ...]
    syncs: tuple[float, ...]
    weights: tuple[float, float]
    start: Placement
    least_times: tuple[float, ...] = ()
    least_syncs: tuple[float, ...] = ()

    @property
    def devices(self) -> int:
        """Number of devices."""
        return len(self.level)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """All blocks, replica by replica."""
        return tuple((replica, stage) for replica in range(self.replicas) for stage in range(len(self.widths)))

    def leaves(self, stage: int) -> tuple[int, ...]:
        """Devices in each leaf of a block of a stage."""
        width = self.widths[stage]
        return tuple(min(self.leaf, width - first) for first in range(0, width, self.leaf))

    def batch_time(self, link_seconds: Iterable[float]) -> float:
        """`T` of PROBLEM.md section 4, when each link takes so many seconds."""
        times, syncs = list(self.times), list(self.syncs)
        for link, seconds in zip(self.links, link_seconds, strict=True):
            for stage in link.stages:
                times[stage] += seconds
            if link.sync is not None:
                syncs[link.sync] += seconds
        times, syncs = (
            [max(each) for each in zip(per_stage, least, strict=True)] if least else per_stage
            for per_stage, least in ((times, self.least_times), (syncs, self.least_syncs))
        )
        slowest, total = self.weights
        return slowest * max(times) + total * sum(times) + max(syncs)

    def price(self, placement: Placement) -> float:
        """Seconds per batch with blocks placed so."""
        return self.batch_time(self.link_seconds(link, placement) for link in self.links)

    def within(self, link: Link, seconds: float) -> Mask:
        """Pairs of devices over which a link takes no more than so many seconds."""
        good = numpy.array([each <= seconds for each in link.seconds])
        mask: Mask = good[self.level] & (self.level >= 0)
        return mask

    def link_seconds(self, link: Link, placement: Places) -> float:
        """Seconds of one link with blocks placed so."""
        seconds = numpy.array([*link.seconds, 0.0])  # The last is that of level -1.
        worst = 0.0
        for group in link.groups:
            blocks = [placement[replica][stage] for replica, stage in group]
            for one, two in self._pairs(blocks, link.inside):
                worst = max(worst, float(seconds[self.level[numpy.ix_(one, two)]].max()))
        if link.aligned:
            (group,) = link.groups
            occupied = {frozenset(placement[replica][stage]) for replica, stage in group}
            if any(occupied == {frozenset(block) for block in blocks} for blocks in link.aligned):
                return min(worst, link.aligned_seconds)
        return worst

    @staticmethod
    def _pairs(blocks: Sequence[Sequence[int]], inside: bool) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
        for index, one in enumerate(blocks):
            if inside:
                yield one, one
            for two in blocks[:index]:
                yield one, two

    def allowed(self, placement: Placement) -> bool:
        """Whether every device is used once at most, and every block is as wide as it must be, and compact."""
        used = [device for replica in placement for block in replica for device in block]
        if len(set(used)) < len(used) or not all(0 <= device < self.devices for device in used):
            return False
        if [[len(block) for block in replica] for replica in placement] != [list(self.widths)] * self.replicas:
            return False
        return all(self.is_compact(block) for replica in placement for block in replica)

    def is_compact(self, block: Sequence[int]) -> bool:
        """Whether no two ranks of a block are further apart than its collectives were priced with."""
        return all(
            self.compact[self.meeting[mine // self.leaf, other // self.leaf]][block[mine], block[other]]
            for mine in range(len(block))
            for other in range(mine)
        )
