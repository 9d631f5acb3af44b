"""Ways to run a collective over some devices of a network: one circuit, or one dimension after the other."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import permutations
from itertools import product as product_of
from math import prod

import numpy
from attrs import frozen

from nest.instance.network import Numbers, Ring
from nest.network.circuits import EXACT, all_orders, circuits
from nest.network.product import Product
from nest.network.routes import Routes
from nest.tolerances import SUM_ERROR

MOST_ORDERED = 5  # Most dimensions for which all ports are tried with every order of them, up to rotation: 24 orders.

MOST_REMEMBERED = 16_384
"""Most sets of members whose rings are kept: searches repeat them, and one takes some kilobytes."""

Sent = tuple[Numbers, Numbers, float]  # Senders, receivers, and the bytes that each sends per byte of the full buffer.


@frozen(eq=False)
class _Dimension:
    """Parallel rings of one dimension: size, slowest figures, and every step of all of them."""

    size: int
    latency: float
    bandwidth: float
    sources: Numbers
    targets: Numbers


@frozen
class Dimensions:
    """A collective one dimension after the other, each a size, a latency and a bandwidth, as a flat ring."""

    sizes: tuple[int, ...]  # Members along each dimension, at least 2.
    latency: tuple[float, ...]  # Of a step along each, seconds.
    bandwidth: tuple[float, ...]  # Along each, bytes per second.
    # Speed-up of each by sending half in each direction: 2 round a ring of links, 1 if both directions use the same
    # links, as between two devices or up and down a line.
    ways: tuple[float, ...]

    def flat_latency(self) -> float:
        """Latency (s) of the equivalent flat ring over all members; equal for every order."""
        steps = [(size - 1) * latency for size, latency in zip(self.sizes, self.latency, strict=True)]
        return sum(steps) / (prod(self.sizes) - 1)

    def flat_bandwidth(self, per_byte: float) -> float:
        """Bandwidth of the flat ring over all members that takes `per_byte` seconds for each byte of the buffer."""
        count = prod(self.sizes)
        return (count - 1) / count / per_byte

    def widest_first(self) -> tuple[int, ...]:
        """Fastest order: exchanging neighbours pays if the wider comes later."""
        return tuple(sorted(range(len(self.sizes)), key=lambda each: -self.bandwidth[each]))

    def shares(self, order: Sequence[int]) -> tuple[float, ...]:
        """Bytes that each member sends along each dimension per byte of the buffer, dimensions in `order`."""
        result, left = [0.0] * len(self.sizes), 1.0
        for each in order:
            result[each] = left * (self.sizes[each] - 1) / self.sizes[each]
            left /= self.sizes[each]
        return tuple(result)

    def per_byte(self, order: Sequence[int]) -> float:
        """Seconds per byte of the buffer without latencies, dimensions in `order`."""
        return sum(share / bandwidth for share, bandwidth in zip(self.shares(order), self.bandwidth, strict=True))

    def ported(self) -> tuple[float, tuple[float, ...]]:
        """With all ports at once: seconds per byte of the buffer, and the bytes sent along each dimension.

        An equal part of the buffer uses each rotation of the order of dimensions, half of it in each direction. The
        slowest part counts, or the links of the dimension with most traffic if that is more; the fastest order is
        taken.
        """
        count = len(self.sizes)
        wide = tuple(map(prod, zip(self.bandwidth, self.ways, strict=True)))
        both = Dimensions(self.sizes, self.latency, wide, self.ways)
        first, *rest = both.widest_first()
        best: tuple[float, tuple[float, ...]] | None = None
        for others in permutations(rest) if count <= MOST_ORDERED else [tuple(rest)]:
            order = (first, *others)
            rotations = [order[turn:] + order[:turn] for turn in range(count)]
            slowest = max(both.per_byte(rotation) for rotation in rotations) / count
            sent = zip(*(self.shares(rotation) for rotation in rotations), strict=True)
            shares = tuple(sum(each) / count for each in sent)
            seconds = max(slowest, *(share / bandwidth for share, bandwidth in zip(shares, wide, strict=True)))
            if best is None or seconds < best[0]:
                best = seconds, shares
        assert best is not None
        return best


class Rings:
    """Finds rings, independently of the order of members."""

    def __init__(self, routes: Routes, product: Product | None, *, all_ports: bool) -> None:
        self._routes = routes
        self._product = product
        self._all_ports = all_ports
        self._found = lru_cache(maxsize=MOST_REMEMBERED)(self._best_over)
        self._along = cache(self._circuit_along)
        self._both_ways = cache(self._circuits_both_ways)

    def over(self, members: Iterable[int]) -> tuple[Ring, ...]:
        """Undominated ways, by ascending latency.

        Raises:
            ValueError: fewer than two devices.
        """
        distinct = frozenset(members)
        if len(distinct) < 2:
            raise ValueError(f"a ring joins two devices or more, not {len(distinct)}")
        return self._found(distinct)

    def _best_over(self, members: frozenset[int]) -> tuple[Ring, ...]:
        devices = numpy.array(sorted(members), dtype=numpy.int64)
        devices = devices[numpy.argsort(self._routes.nodes[devices])]  # As in the file, however levels have them.
        return _best([*self._dimensional(devices), *self._flat(devices)])

    def _flat(self, devices: Numbers) -> Iterator[Ring]:
        """One circuit over all of them."""
        count, routes = len(devices), self._routes
        block = numpy.ix_(devices, devices)
        walks = [list(range(count)), self._snake(devices)] if count > EXACT else []
        guesses = [guess for walk in walks for guess in _round(walk)]
        for circuit in circuits(routes.bandwidth[block], routes.latency[block], routes.hops[block], guesses):
            along = devices[circuit.order]
            sent = [(along, numpy.roll(along, -1), (count - 1) / count)]
            yield self._ring(circuit.latency, circuit.bandwidth, sent)

    def _snake(self, devices: Numbers) -> list[int]:
        """Rows of `devices` along a product, every other line backwards."""
        if self._product is None:
            return list(range(len(devices)))
        place = self._product.place[devices]
        keys, backwards = [], numpy.zeros(len(devices), dtype=bool)
        for column, size, along in zip(place.T, self._product.sizes, self._product.along, strict=True):
            turned = numpy.where(backwards, size - 1 - along[column], along[column])
            keys.append(turned)
            backwards = backwards ^ (turned % 2 == 1)
        order: list[int] = numpy.lexsort(keys[::-1]).tolist()
        return order

    def _dimensional(self, devices: Numbers) -> Iterator[Ring]:
        """One dimension after the other, if the devices are a sub-grid of a product."""
        if self._product is None:
            return
        place = self._product.place[devices]
        used = [column for column in range(place.shape[1]) if (place[:, column] != place[0, column]).any()]
        values = [tuple(numpy.unique(place[:, column]).tolist()) for column in used]
        shape = [len(each) for each in values]
        if prod(shape) != len(devices):
            return
        whole = devices[numpy.lexsort([place[:, column] for column in reversed(used)])].reshape(shape)
        if len(used) > 1:
            orders = map(self._along, used, values)
            yield self._in_turn([self._lines(whole, axis, order) for axis, order in enumerate(orders)])
        if self._all_ports:
            for chosen in product_of(*map(self._both_ways, used, values)):
                yield self._at_once([self._lines(whole, axis, order) for axis, order in enumerate(chosen)])

    def _in_turn(self, lines: Sequence[_Dimension]) -> Ring:
        """One dimension after the other, the widest first."""
        figures = _figures(lines, [1.0] * len(lines))
        order = figures.widest_first()
        sent = [(line.sources, line.targets, share) for line, share in zip(lines, figures.shares(order), strict=True)]
        return self._ring(figures.flat_latency(), figures.flat_bandwidth(figures.per_byte(order)), sent)

    def _at_once(self, lines: Sequence[_Dimension]) -> Ring:
        figures = _figures(lines, [self._ways(line) for line in lines])
        per_byte, shares = figures.ported()
        sent = []
        for line, share in zip(lines, shares, strict=True):
            sent.append((line.sources, line.targets, share / 2))
            sent.append((line.targets, line.sources, share / 2))
        return self._ring(figures.flat_latency(), figures.flat_bandwidth(per_byte), sent)

    def _lines(self, whole: Numbers, axis: int, order: Numbers) -> _Dimension:
        """Parallel rings along a dimension of a grid of devices, with places in this order."""
        circuit = whole.take(order, axis=axis)
        sources, targets = circuit.reshape(-1), numpy.roll(circuit, -1, axis=axis).reshape(-1)
        slowest = float(self._routes.latency[sources, targets].max())
        narrowest = float(self._routes.bandwidth[sources, targets].min())
        return _Dimension(whole.shape[axis], slowest, narrowest, sources, targets)

    def _ways(self, line: _Dimension) -> float:
        """Speed-up of rings by sending half in each direction."""
        _, there = self._routes.paths(line.sources, line.targets)
        _, back = self._routes.paths(line.targets, line.sources)
        busiest = numpy.bincount(there)
        return 2.0 * float(busiest.max()) / float(numpy.bincount(numpy.concatenate([there, back])).max())

    def _circuit_along(self, dimension: int, places: tuple[int, ...]) -> Numbers:
        """Order of these places of a dimension with the shortest steps."""
        assert self._product is not None
        hops = self._product.hops[dimension][numpy.ix_(places, places)]
        walk = numpy.argsort(self._product.along[dimension][list(places)]).tolist()
        return circuits(numpy.ones(hops.shape), hops.astype(numpy.float64), hops, _round(walk))[0].order

    def _circuits_both_ways(self, dimension: int, places: tuple[int, ...]) -> tuple[Numbers, ...]:
        """Orders of these places that are undominated in latency and in links shared by both directions.

        An incomplete ring has two good ones: to its end and back, with short steps over the same links in both
        directions, or round, with one long step and no shared link. Up to `EXACT` places all are tried.
        """
        assert self._product is not None
        if len(places) > EXACT:
            walk = numpy.argsort(self._product.along[dimension][list(places)])
            orders = numpy.array([self._along(dimension, places), walk])
        else:
            orders = all_orders(len(places))
        return tuple(self._unbeaten(dimension, places, orders))

    def _unbeaten(self, dimension: int, places: tuple[int, ...], orders: Numbers) -> Iterator[Numbers]:
        """Undominated `orders`, by ascending latency, on one line."""
        assert self._product is not None
        others = numpy.delete(self._product.place, dimension, axis=1)
        line = numpy.flatnonzero((others == others[0]).all(axis=1))
        line = line[numpy.argsort(self._product.place[line, dimension])][list(places)]
        count, following = len(places), numpy.roll(orders, -1, axis=1)
        which, links = self._routes.paths(numpy.repeat(line, count), numpy.tile(line, count))
        used, column = numpy.unique(links, return_inverse=True)
        pairs = numpy.zeros((count * count, len(used)), dtype=numpy.int16)
        pairs[which, column] = 1
        crossed = pairs.reshape(count, count, len(used))
        there = crossed[orders, following].sum(axis=1, dtype=numpy.int16)
        both = there + crossed[following, orders].sum(axis=1, dtype=numpy.int16)
        ways = there.max(axis=1) / both.max(axis=1)
        hops = self._product.hops[dimension][numpy.ix_(places, places)][orders, following]
        longest = hops.max(axis=1) * self._product.latency[dimension]
        most = 0.0
        for row in numpy.lexsort((hops.sum(axis=1), -ways, longest)).tolist():
            if ways[row] > most:
                most = float(ways[row])
                yield orders[row]

    def _ring(self, latency: float, bandwidth: float, sent: Sequence[Sent]) -> Ring:
        """A ring with the load of each directed link."""
        crossed = [(*self._routes.paths(sources, targets), share) for sources, targets, share in sent]
        every = numpy.concatenate([links for _, links, _ in crossed])
        weights = numpy.concatenate([numpy.full(len(links), share) for _, links, share in crossed])
        links, index = numpy.unique(every, return_inverse=True)
        shares = numpy.bincount(index.reshape(-1), weights).astype(numpy.float64)
        return Ring(latency, bandwidth, links, shares)


def _figures(lines: Sequence[_Dimension], ways: Sequence[float]) -> Dimensions:
    return Dimensions(
        tuple(each.size for each in lines),
        tuple(each.latency for each in lines),
        tuple(each.bandwidth for each in lines),
        tuple(ways),
    )


def _round(walk: list[int]) -> tuple[list[int], list[int]]:
    """Two circuits made of a walk: straight back from its end, or every other step there and the others back."""
    return walk, [*walk[::2], *walk[1::2][::-1]]


def _best(rings: Sequence[Ring]) -> tuple[Ring, ...]:
    """Undominated rings, by ascending latency; of equals, up to the order of sums, the first."""
    front: list[Ring] = []
    for ring in sorted(rings, key=lambda each: (each.latency, -each.bandwidth)):
        if not front or ring.bandwidth > front[-1].bandwidth * (1.0 + SUM_ERROR):
            front.append(ring)
    return tuple(front)
