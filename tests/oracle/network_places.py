"""Every placement of blocks on a network that is no hierarchy, as far as placements are priced apart."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise, permutations

import numpy

from tests.oracle.network_price import counterparts, translates

Shape = tuple[int, tuple[tuple[int, ...], ...]]
"""The width of a block, and the ranks of its parameter groups."""


@dataclass(frozen=True, eq=False)
class Places:
    """The placements of some stages, of those with equal sets one each.

    Attributes:
        devices: for each stage placements by replicas by ranks.
        group: for each stage and placement, which of the `blocks` stand for the sets that reduce its gradients.
        blocks: for each stage its blocks, replica by replica, one for each collection of sets.
    """

    devices: list[numpy.ndarray]
    group: list[numpy.ndarray]
    blocks: list[list[list[list[int]]]]

    def pairs(self, one: int, two: int, rows=slice(None)) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Who sends to whom from one stage to another: placements by replicas by messages."""
        here, there = self.devices[one][rows], self.devices[two][rows]
        sent = numpy.array(counterparts(range(here.shape[2]), range(there.shape[2])))
        return here[:, :, sent[:, 0]], there[:, :, sent[:, 1]]

    def replica(self, row: int, index: int) -> list[list[int]]:
        """The blocks of a replica in one placement."""
        return [devices[row, index].tolist() for devices in self.devices]


@lru_cache(maxsize=64)
def placements(size: int, replicas: int, stages: tuple[Shape, ...], degree: int | None, between) -> Places:
    """Every placement, replicas in the order of their first devices unless shard groups tell them apart.

    `between` are the pairs of stages that send to each other.
    """
    starts = [0, *accumulate(width for width, _ in stages)]
    every = numpy.array(list(permutations(range(size), replicas * starts[-1])), dtype=numpy.int64)
    every = every.reshape(-1, replicas, starts[-1])
    if degree is None:
        every = every[(every[:, 1:, 0] > every[:, :-1, 0]).all(axis=1)]
    devices = [every[:, :, first:end] for first, end in pairwise(starts)]
    group, blocks = [], []
    for own, (_, ranks) in zip(devices, stages, strict=True):
        columns = numpy.stack([each for one in ranks for each in sharing_sets(own, list(one), degree)], axis=-1)
        _, first, which = numpy.unique(columns, axis=0, return_index=True, return_inverse=True)
        group.append(which.reshape(-1))
        blocks.append(own[first].tolist())
    places = Places(devices, group, blocks)
    crossing = []
    for pair in between:
        senders, receivers = places.pairs(*pair)
        bits = numpy.uint64(1) << (size * senders + receivers).astype(numpy.uint64)
        crossing.append(numpy.bitwise_or.reduce(bits, axis=(1, 2)))
    _, kept = numpy.unique(numpy.stack([*crossing, *group], axis=-1), axis=0, return_index=True)
    kept.sort()
    return Places([own[kept] for own in devices], [which[kept] for which in group], blocks)


def sharing_sets(own: numpy.ndarray, ranks: list[int], degree: int | None) -> list[numpy.ndarray]:
    """For each placement the sets that reduce gradients of a stage, as bits of a number, ascending.

    Where ZeRO shards over some of a set alone, each of its shard groups follows, in their order, with the devices of
    each in theirs: every number tells one device.
    """
    replicas, width = own.shape[1:]
    if replicas * len(ranks) == 1:
        return [numpy.zeros(len(own), dtype=numpy.int64)]  # One device reduces nothing, whichever it is.
    if degree is not None and degree < replicas * len(ranks):
        return [own[:, replica, rank] for replica in range(replicas) for rank in range(width)]
    sets = [(numpy.int64(1) << own)[..., each].sum(axis=(1, 2)) for each in translates(ranks, width)]
    return list(numpy.moveaxis(numpy.sort(numpy.stack(sets, axis=-1), axis=-1), -1, 0))
