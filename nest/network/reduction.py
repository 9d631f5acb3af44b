"""A network reduced to levels of uniform groups, or of pairs, by hops or by bandwidth (PROBLEM.md section 1)."""

import math
from collections.abc import Iterator, Sequence

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.instance.cluster import Level
from nest.instance.pairs import Hops, Pairs
from nest.network.graph import Floats, Numbers
from nest.network.hierarchy import ROWS, Tier, neighbour_order, tiers

REFERENCE_MESSAGE = 2.0**20
"""Bytes: at 50 GB/s such a message takes 21 us, so that bandwidth decides and latencies of microseconds still count."""

HOPS, BANDWIDTH = "hop distance", "bandwidth"
"""The ways to bring devices into an order."""


@frozen
class Stretch:
    """How much slower the levels say pairs are than they are: time by the levels over time by the network.

    1 means exactly as fast; it is never less, since a level is as slow as the slowest of its pairs.

    Attributes:
        mean: over all pairs.
        largest: of any pair.
    """

    mean: float
    largest: float


@frozen(eq=False)
class Reduction:
    """Levels for a network.

    Attributes:
        method: what brought the devices into their order: `hop distance` or `bandwidth`.
        levels: innermost first.
        order: for each place in the hierarchy, the device there, as a row of the pairs.
        stretch: against the pairs.
    """

    method: str
    levels: tuple[Level, ...]
    order: Numbers
    stretch: Stretch

    @property
    def exact(self) -> bool:
        """Whether the network is a hierarchy: the levels say of every pair what the network does."""
        return self.stretch.largest == 1.0

    @property
    def fanouts(self) -> tuple[int, ...]:
        """Children per group, innermost level first."""
        return tuple(level.fanout for level in self.levels)


@frozen(eq=False)
class Reduced:
    """A network with its reductions.

    Attributes:
        pairs: the network, devices as listed.
        reductions: by hop distance (where hops are known) and by bandwidth.
        message: bytes of the message stretch is measured with.
    """

    pairs: Pairs
    reductions: tuple[Reduction, ...]
    message: float

    @property
    def best(self) -> Reduction:
        """The reduction with the smaller mean stretch, then the smaller largest; the first of equals."""
        return min(self.reductions, key=lambda each: (each.stretch.mean, each.stretch.largest))

    @property
    def names(self) -> tuple[str, ...]:
        """The devices' names along the hierarchy: device `i` of the cluster is `names[i]`."""
        return tuple(self.pairs.names[index] for index in self.best.order)


def reduce(pairs: Pairs, message: float = REFERENCE_MESSAGE) -> Reduced:
    """Levels for `pairs`, by every method.

    Each method orders the devices so that near ones lie side by side: near in hops, or by bandwidth (seconds per
    byte). Where the order of the file fits as well, it is kept. A hierarchical network (every pair of a level alike, in
    groups of one size) comes out exactly, whatever the order of its nodes.

    Args:
        pairs: at least two devices.
        message: bytes of the message stretch is measured with.
    """
    return Reduced(pairs, tuple(_reductions(pairs, message)), message)


def _reductions(pairs: Pairs, message: float) -> Iterator[Reduction]:
    listed = _reduction(HOPS, pairs, numpy.arange(pairs.size), message)
    for method in (BANDWIDTH,) if pairs.hops is None else (HOPS, BANDWIDTH):
        order = listed.order if listed.exact else neighbour_order(_distance(pairs, method))
        own = listed if (order[1:] > order[:-1]).all() else _reduction(method, pairs, order, message)
        best = min(listed, own, key=lambda each: (each.stretch.mean, each.stretch.largest))
        yield Reduction(method, best.levels, best.order, best.stretch)


def _distance(pairs: Pairs, method: str) -> Floats | Hops:
    """What makes two devices far apart."""
    if method == HOPS and pairs.hops is not None:
        return pairs.hops
    distances: Floats = 1.0 / pairs.bandwidth
    return distances


def _reduction(method: str, pairs: Pairs, order: Numbers, message: float) -> Reduction:
    ordered = pairs.reordered(order)
    chosen = tiers(ordered, message)
    return Reduction(method, _levels(chosen), order, _stretch(ordered, chosen, message))


def _levels(chosen: Sequence[Tier]) -> tuple[Level, ...]:
    below = 1
    levels = []
    hops = [tier.hops for tier in chosen]
    telling = None not in hops and len(set(hops)) == len(hops)
    for index, tier in enumerate(chosen):
        description = f"{tier.hops} hop{'s' if tier.hops != 1 else ''}" if telling else f"level {index}"
        levels.append(Level(description, tier.capacity // below, tier.bandwidth, tier.latency))
        below = tier.capacity
    return tuple(levels)


def _stretch(ordered: Pairs, chosen: Sequence[Tier], message: float) -> Stretch:
    """Of devices in the order of the hierarchy."""
    device, largest, sums = numpy.arange(ordered.size), 1.0, []
    for start in range(0, ordered.size, ROWS):
        rows = slice(start, start + ROWS)
        ratio = numpy.empty((len(device[rows]), ordered.size))
        for tier in reversed(chosen):
            together = (device[rows] // tier.capacity)[:, None] == (device // tier.capacity)[None, :]
            ratio[together] = tier.latency + message / tier.bandwidth
        seconds = ordered.latency[rows] + message / ordered.bandwidth[rows]
        itself = device[rows][:, None] == device[None, :]
        ratio[itself], seconds[itself] = 0.0, 1.0
        ratio /= seconds
        largest = max(largest, float(ratio.max()))
        sums += ratio.sum(axis=1).tolist()
    mean = 1.0 if largest == 1.0 else max(1.0, math.fsum(sums) / (ordered.size * (ordered.size - 1)))
    return Stretch(mean, largest)


MOST_CLASSES = 3
"""Levels of a matrix: PROBLEM.md section 1 names three (1 hop, 2 hops, remote)."""


@frozen(eq=False)
class LevelMatrix:
    """Levels of pairs; unlike the levels of a cluster they need not form groups.

    Attributes:
        names: the devices, in the order of rows and columns.
        bandwidth: of each level the least of its pairs, bytes per second and direction.
        latency: of each level the largest of its pairs, seconds.
        level: devices by devices, symmetric; -1 on the diagonal.
    """

    names: tuple[str, ...]
    bandwidth: tuple[float, ...]
    latency: tuple[float, ...]
    level: NDArray[numpy.int8]


def level_matrix(pairs: Pairs, *, by_hops: bool, most: int = MOST_CLASSES) -> LevelMatrix:
    """Every pair in one of at most `most` levels, nearest first, each as slow as the slowest of its pairs.

    By hops: 1 hop, 2 hops, ..., and all that is further in the last. By bandwidth: values in descending order, parted
    where neighbouring values differ by the largest factors.

    Raises:
        ValueError: hops are asked for and not known.
    """
    if by_hops and pairs.hops is None:
        raise ValueError("measured pairs have no hops")
    keys: Floats = (pairs.hops if by_hops else 1.0 / pairs.bandwidth).astype(numpy.float64)  # type: ignore[union-attr]
    apart = ~numpy.eye(pairs.size, dtype=bool)
    values = numpy.unique(keys[apart])
    starts = numpy.arange(min(most, len(values))) if by_hops else _parted(values, most)
    level = (numpy.searchsorted(values[starts], keys, side="right") - 1).astype(numpy.int8)
    numpy.fill_diagonal(level, -1)
    masks = [level == index for index in range(len(starts))]
    return LevelMatrix(
        names=pairs.names,
        bandwidth=tuple(float(pairs.bandwidth[mask].min()) for mask in masks),
        latency=tuple(float(pairs.latency[mask].max()) for mask in masks),
        level=level,
    )


def _parted(values: Floats, most: int) -> NDArray[numpy.int64]:
    """Where the groups of ascending `values` begin, parted at the largest ratios of neighbours."""
    ratios = values[1:] / values[:-1]
    cuts = numpy.sort(numpy.argsort(-ratios, kind="stable")[: most - 1]) + 1
    return numpy.concatenate([[0], cuts]).astype(numpy.int64)
