"""Best possible ring over any so many devices of a network."""

from collections.abc import Iterable, Iterator
from functools import cache
from math import prod

import numpy
from attrs import frozen

from nest.instance.cluster import Level
from nest.instance.network import NetworkModel, Numbers
from nest.instance.pairs import Floats
from nest.network.circuits import Mask, cycles_fit
from nest.network.product import Product
from nest.network.rings import Dimensions
from nest.network.routes import Routes
from nest.tolerances import SUM_ERROR

MOST_BANDWIDTHS = 24  # Bandwidths distinguished; with more, one stands for all down to the next, and bounds are looser.
MOST_LATENCIES = 256  # Latencies distinguished, likewise.
Figures = tuple[float, float]  # Latency in seconds and bandwidth in bytes per second.


@frozen(eq=False)
class _Steps:
    """Thresholds of a figure, best first, and the best value between each and the one before."""

    thresholds: Floats
    best: Floats


class BestRings:
    """Bounds on rings: no ring over `count` devices beats all of the returned figures."""

    def __init__(self, routes: Routes, product: Product | None, *, all_ports: bool) -> None:
        self._bandwidth, self._latency = routes.bandwidth, routes.latency
        self._product = product
        self._all_ports = all_ports
        apart = ~numpy.eye(routes.size, dtype=bool)
        self._wide = _descending(routes.bandwidth[apart], MOST_BANDWIDTHS)
        self._quick = _ascending(routes.latency[apart], MOST_LATENCIES)
        self._fits = cache(self._most_members)
        self._along = cache(self._fewest_hops)
        self.of = cache(self._of)

    def _of(self, count: int) -> tuple[Figures, ...]:
        """Latencies and bandwidths for `count` devices, by ascending latency; exact up to `SUM_ERROR`.

        Raises:
            ValueError: `count` is below two or above the number of devices.
        """
        if not 2 <= count <= len(self._bandwidth):
            raise ValueError(f"a ring joins 2 to {len(self._bandwidth)} of these devices, not {count}")
        front: list[Figures] = []
        for latency, bandwidth in sorted([*self._flat(count), *self._dimensional(count)], key=lambda f: (f[0], -f[1])):
            if not front or bandwidth > front[-1][1] * (1.0 + SUM_ERROR):
                front.append((latency, bandwidth))
        return tuple(front)

    def _flat(self, count: int) -> Iterator[Figures]:
        """One circuit: for each bandwidth the least latency at which so many devices may form a cycle."""
        place = len(self._quick.thresholds) - 1
        for index, bandwidth in enumerate(self._wide.best.tolist()):
            low, high = 0, place
            if self._fits(index, high, count == 2) < count:
                continue
            while low < high:
                middle = (low + high) // 2
                if self._fits(index, middle, count == 2) >= count:
                    high = middle
                else:
                    low = middle + 1
            place = low
            yield float(self._quick.best[place]), bandwidth

    def _most_members(self, wide: int, quick: int, two: bool) -> int:
        """Most members of a circuit with no step beyond these thresholds; `two`: of circuits of two."""
        step: Mask = (self._bandwidth >= self._wide.thresholds[wide]) & (self._latency <= self._quick.thresholds[quick])
        if two:
            numpy.fill_diagonal(step, val=False)
            return 2 if (step & step.T).any() else 0
        return cycles_fit(step | step.T)

    def _dimensional(self, count: int) -> Iterator[Figures]:
        """One dimension after the other: for each sub-grid of `count` devices."""
        product = self._product
        if product is None:
            return
        for sizes in _factorisations(count, product.sizes):
            used = [dimension for dimension, size in enumerate(sizes) if size > 1]
            figures = Dimensions(
                tuple(sizes[each] for each in used),
                tuple(product.latency[each] * self._along(each, sizes[each]) for each in used),
                tuple(product.bandwidth[each] for each in used),
                tuple(self._ways(each, sizes[each]) for each in used),
            )
            per_byte = figures.per_byte(figures.widest_first())
            if self._all_ports:
                per_byte = min(per_byte, figures.ported()[0])
            yield figures.flat_latency(), figures.flat_bandwidth(per_byte)

    def _ways(self, dimension: int, size: int) -> float:
        """Largest gain of both directions together: a circuit on a tree uses each link both ways."""
        assert self._product is not None
        hops = self._product.hops[dimension]
        is_tree = int((hops == 1).sum()) == 2 * (len(hops) - 1)
        return 1.0 if size == 2 or is_tree else 2.0

    def _fewest_hops(self, dimension: int, size: int) -> int:
        """Lower bound on the hops of the longest step of a circuit over `size` places of a dimension."""
        assert self._product is not None
        hops: Numbers = self._product.hops[dimension]
        if size == 2:
            return 1
        return next(far for far in range(1, len(hops) + 1) if cycles_fit(hops <= far) >= size)


def _factorisations(count: int, most: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Factorisations of `count` with no factor above its `most`."""
    if count > prod(most):
        return
    if not most:
        yield ()
        return
    for size in range(1, min(count, most[0]) + 1):
        if count % size == 0:
            for rest in _factorisations(count // size, most[1:]):
                yield (size, *rest)


def _descending(values: Floats, most: int) -> _Steps:
    """Thresholds at or below which values are; larger or equal values pass."""
    steps = _ascending(-values, most)
    return _Steps(-steps.thresholds, -steps.best)


def _ascending(values: Floats, most: int) -> _Steps:
    """Thresholds at or above which values are; smaller or equal values pass.

    If there are too many, half of the thresholds are at the largest steps, such as between a node and the network in
    noisy measurements; the others are spread evenly.
    """
    distinct = numpy.unique(values)
    count = len(distinct)
    if count <= most:
        return _Steps(distinct, distinct)
    size = numpy.log(numpy.maximum(numpy.abs(distinct), numpy.finfo(float).tiny))
    apart = numpy.argsort(-numpy.abs(numpy.diff(size)), kind="stable")[: most // 2]
    evenly = numpy.linspace(0, count - 1, most - most // 2).astype(numpy.int64)
    last = numpy.unique(numpy.concatenate([apart, evenly]))
    first = numpy.append(0, last[:-1] + 1)
    return _Steps(distinct[last], distinct[first])


def optimistic_level(network: NetworkModel, counts: Iterable[int] = ()) -> Level:
    """Single level over all devices that is as fast as the network can be anywhere, without other traffic.

    Its best plan is a lower bound for the network.

    Args:
        network: the actual network.
        counts: numbers of devices, at least 2, of collectives; no ring over so many is faster either.
    """
    size = len(network.names)
    apart = ~numpy.eye(size, dtype=bool)
    figures = [(float(network.latency[apart].min()), float(network.bandwidth[apart].max()))]
    figures += [each for count in sorted(set(counts)) for each in network.least_rings(count)]
    return Level("network", size, max(bandwidth for _, bandwidth in figures), min(latency for latency, _ in figures))
