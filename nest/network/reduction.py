"""Reduction of a network to levels of uniform groups, or of pairs, by hops or by bandwidth (PROBLEM.md section 1)."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy
from attrs import frozen

from nest.instance.cluster import Level
from nest.instance.pairs import Hops, Pairs
from nest.network.graph import REFERENCE_MESSAGE, Floats, LinkGraph, Numbers
from nest.network.hierarchy import ROWS, Tier, neighbour_order, tiers
from nest.network.paths import pairs as pairs_of

HOPS, BANDWIDTH = "hop distance", "bandwidth"  # Methods of ordering devices.


@frozen
class Stretch:
    """Stretch of pairs: time by the levels over time by the network.

    1 is exact; it is never less, since a level is as slow as the slowest of its pairs.

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
        method: of ordering the devices: `hop distance` or `bandwidth`.
        levels: innermost first.
        order: for each place in the hierarchy, its device, as a row of the pairs.
        stretch: relative to the pairs.
    """

    method: str
    levels: tuple[Level, ...]
    order: Numbers
    stretch: Stretch

    @property
    def exact(self) -> bool:
        """True if the levels are exact for every pair."""
        return self.stretch.largest == 1.0

    @property
    def hierarchy(self) -> bool:
        """True if the network is a hierarchy: exact levels, none faster than one inside it (an ultrametric)."""
        return self.exact and all(
            inner.bandwidth >= outer.bandwidth and inner.latency <= outer.latency
            for inner, outer in pairwise(self.levels)
        )

    @property
    def fanouts(self) -> tuple[int, ...]:
        """Children per group, innermost level first."""
        return tuple(level.fanout for level in self.levels)


@frozen(eq=False)
class Reduced:
    """A network with its reductions.

    Attributes:
        pairs: the network, devices as listed.
        reductions: by hop distance (if hops are known) and by bandwidth.
        message: bytes of the message for which stretch is measured.
    """

    pairs: Pairs
    reductions: tuple[Reduction, ...]
    message: float

    @property
    def best(self) -> Reduction:
        """Reduction with the smaller mean stretch, then the smaller largest; the first of equals."""
        return min(self.reductions, key=lambda each: (each.stretch.mean, each.stretch.largest))

    @property
    def names(self) -> tuple[str, ...]:
        """The devices' names along the hierarchy: device `i` of the cluster is `names[i]`."""
        return tuple(self.pairs.names[index] for index in self.best.order)


def reduce(network: LinkGraph | Pairs, message: float = REFERENCE_MESSAGE) -> Reduced:
    """Reduce a network's pairs to levels, by every method.

    Each method orders the devices so that near ones are adjacent: near in hops, or by bandwidth (seconds per byte). The
    order of the file is kept if it fits as well. A hierarchical network (every pair of a level alike, in groups of one
    size) is reduced exactly, whatever the order of its nodes.

    Args:
        network: of at least two devices.
        message: bytes of the message for which stretch is measured.
    """
    pairs = pairs_of(network) if isinstance(network, LinkGraph) else network
    return Reduced(pairs, tuple(_reductions(pairs, message)), message)


def _reductions(pairs: Pairs, message: float) -> Iterator[Reduction]:
    listed = _reduction(HOPS, pairs, numpy.arange(pairs.size), message)
    for method in (BANDWIDTH,) if pairs.hops is None else (HOPS, BANDWIDTH):
        order = listed.order if listed.exact else neighbour_order(_distance(pairs, method))
        own = listed if (order[1:] > order[:-1]).all() else _reduction(method, pairs, order, message)
        best = min(listed, own, key=lambda each: (each.stretch.mean, each.stretch.largest))
        yield Reduction(method, best.levels, best.order, best.stretch)


def _distance(pairs: Pairs, method: str) -> Floats | Hops:
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
    """Stretch for devices in the order of the hierarchy."""
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
