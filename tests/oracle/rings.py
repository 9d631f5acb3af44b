"""Section 1 of PROBLEM.md: rings over devices of a network that is no hierarchy, and the cheapest for a buffer."""

from collections import Counter
from dataclasses import dataclass
from itertools import permutations, product
from math import inf, prod

from tests.oracle.products import coordinates
from tests.oracle.topology import Topology

TIE = 1 + 1e-12
"""Rings within this factor cost the same."""


@dataclass(frozen=True)
class Ring:
    """A way to run a collective, as costly as a flat ring with this latency and bandwidth.

    `shares` are the bytes that each link carries in one phase (reduce-scatter or all-gather) per byte of the buffer.
    """

    members: int
    latency: float
    bandwidth: float
    shares: dict[int, float]

    def phase(self, size: float) -> float:
        """Seconds of a reduce-scatter or an all-gather of a full buffer."""
        k = self.members
        return (k - 1) * self.latency + (k - 1) / k * size / self.bandwidth


class Rings:
    """The rings of a network, remembered. Collectives may drive all ports of a device at once."""

    def __init__(self, topology: Topology, *, all_ports: bool = False) -> None:
        self.topology = topology
        self.all_ports = all_ports
        self.points = places(topology)
        self.known: dict[tuple[int, ...], list[Ring]] = {}
        self.known_circuits: dict[tuple[int, ...], list[Ring]] = {}

    def cheapest(self, members, size: float) -> Ring:
        """The cheapest ring over two devices or more for a buffer of this size; of several the first."""
        every = self.ways(members)
        least = min(ring.phase(size) for ring in every)
        return next(ring for ring in every if ring.phase(size) <= least * TIE)

    def ways(self, members) -> list[Ring]:
        """The rings that can be the cheapest: one dimension after the other in every order, then circuits."""
        key = tuple(sorted(members))
        if key not in self.known:
            self.known[key] = front([*self.by_dimensions(key), *self.circuits(key)])
        return self.known[key]

    def circuits(self, members: tuple[int, ...]) -> list[Ring]:
        """The circuits that no other beats; of equals the one of fewest hops, then the first by members."""
        if members not in self.known_circuits:
            first, *others = members
            figures: dict[tuple[float, float], tuple[int, tuple[int, ...]]] = {}
            for rest in permutations(others):
                latency, bandwidth, hops = self.figures((first, *rest))
                known = figures.get((latency, bandwidth))
                if known is None or hops < known[0]:
                    figures[latency, bandwidth] = (hops, (first, *rest))
            self.known_circuits[members] = [self.circuit(figures[each][1], *each) for each in unbeaten(figures)]
        return self.known_circuits[members]

    def figures(self, order: tuple[int, ...]) -> tuple[float, float, int]:
        """The largest latency and the smallest bandwidth of the paths of a circuit, and the hops of all of them."""
        latency, bandwidth, path = self.topology.latency, self.topology.bandwidth, self.topology.path
        slow, wide, hops, one = 0.0, inf, 0, order[-1]
        for two in order:
            slow, wide = max(slow, latency[one][two]), min(wide, bandwidth[one][two])
            hops += len(path[one][two])
            one = two
        return slow, wide, hops

    def circuit(self, order: tuple[int, ...], latency: float, bandwidth: float) -> Ring:
        """The flat ring that goes round in this order."""
        count, ends = len(order), zip(order, (*order[1:], order[0]), strict=True)
        crossed = Counter(link for one, two in ends for link in self.topology.path[one][two])
        return Ring(count, latency, bandwidth, {link: n * (count - 1) / count for link, n in crossed.items()})

    def by_dimensions(self, members: tuple[int, ...]) -> list[Ring]:
        """Rings one dimension after the other, where the members are a sub-grid; those on all ports last."""
        if self.points is None:
            return []
        sides = [sorted({self.points[device][axis] for device in members}) for axis in range(len(self.points[0]))]
        along = [axis for axis, side in enumerate(sides) if len(side) > 1]
        if prod(map(len, sides)) != len(members):
            return []
        rows = [self.rows(members, axis) for axis in along]
        parallel = [[self.circuits(row)[0] for row in every] for every in rows]
        found = [in_turn(order) for order in permutations(parallel)] if len(along) > 1 else []
        if self.all_ports:
            for both in product(*map(self.both_ways, rows)):
                found += [self.at_once(list(order)) for order in permutations(both)]
        return found

    def rows(self, members: tuple[int, ...], axis: int) -> list[tuple[int, ...]]:
        """The members of each of the parallel lines along a dimension, by their places."""
        found: dict[tuple[int, ...], list[int]] = {}
        for device in sorted(members, key=lambda device: self.points[device][axis]):
            point = self.points[device]
            found.setdefault((*point[:axis], *point[axis + 1 :]), []).append(device)
        return [tuple(row) for row in found.values()]

    def both_ways(self, rows: list[tuple[int, ...]]) -> list[tuple[list[Ring], list[Ring]]]:
        """Rings of all parallel lines in both directions: for each circuit that is the best in some figure.

        All lines go round alike. What counts of a circuit is its latency, and how many of its links the two directions
        share; of equals the one with fewest hops, then the first by places.
        """
        figures: dict[tuple[float, float], tuple[int, list[list[Ring]]]] = {}
        for rest in permutations(range(1, len(rows[0]))):
            order = (0, *rest)
            hops = self.figures(tuple(rows[0][place] for place in order))[2]
            rings = [self.along(rows, turn) for turn in (order, order[::-1])]
            key = (max(ring.latency for ring in rings[0]), 1 / shared(*rings))
            if key not in figures or hops < figures[key][0]:
                figures[key] = (hops, rings)
        return [tuple(figures[each][1]) for each in unbeaten(figures)]

    def along(self, rows: list[tuple[int, ...]], order: tuple[int, ...]) -> list[Ring]:
        """The circuits of all parallel lines in this order of places."""
        circuits = [tuple(row[place] for place in order) for row in rows]
        return [self.circuit(circuit, *self.figures(circuit)[:2]) for circuit in circuits]

    def at_once(self, dimensions: list[tuple[list[Ring], list[Ring]]]) -> Ring:
        """An even part of the buffer along each rotation of an order of dimensions, half of it in each direction.

        `dimensions` are for each the rings of its lines in one direction and in the other. In the time of one direction
        alone its half is sent if the two share no links; else a phase lasts until the link that both use most is done.
        The slowest part counts, or the busiest links of a dimension where that is more.
        """
        count, members = len(dimensions), prod(there[0].members for there, _ in dimensions)
        latency = sum((there[0].members - 1) * max(ring.latency for ring in there) for there, _ in dimensions)
        per_byte, sent, part = [0.0] * count, [0.0] * count, [0.0] * count
        for turn in range(count):
            left = 1 / count
            for axis in (*range(turn, count), *range(turn)):
                there, back = dimensions[axis]
                size = there[0].members
                seconds = (size - 1) / size * left / min(ring.bandwidth for ring in there) * shared(there, back)
                per_byte[turn] += seconds
                sent[axis] += seconds
                part[axis] += left
                left /= size
        shares: Counter[int] = Counter()
        for share, (there, back) in zip(part, dimensions, strict=True):
            for ring in (*there, *back):
                shares.update({link: each * share / 2 for link, each in ring.shares.items()})
        return as_flat(members, latency, max(*per_byte, *sent), shares)


def shared(there: list[Ring], back: list[Ring]) -> float:
    """How long half a buffer in each direction takes, over all of it in one: a half, or more where links are shared."""
    return busiest([*there, *back]) / 2 / busiest(there)


def busiest(rings: list[Ring]) -> float:
    """The largest share of a buffer that a link carries of all these rings together."""
    carried: Counter[int] = Counter()
    for ring in rings:
        carried.update(ring.shares)
    return max(carried.values())


def places(topology: Topology) -> list[tuple[int, ...]] | None:
    """For each device its place along each dimension; None where the network is no product of links alike.

    Dimensions come in the order of their first links in the file, the places of a dimension in that of the lowest
    device at each.
    """
    if topology.neighbours is None:
        return None
    points = coordinates(topology.neighbours)
    axes = range(len(points[0]))
    found: dict[int, set[tuple[float, float]]] = {}
    for link in topology.links:
        here, there = points[topology.devices.index(link.source)], points[topology.devices.index(link.target)]
        (axis,) = (axis for axis in axes if here[axis] != there[axis])
        found.setdefault(axis, set()).add((link.bandwidth, link.latency))
    if any(len(figures) > 1 for figures in found.values()):
        return None
    ranks = {axis: list(dict.fromkeys(point[axis] for point in points)) for axis in axes}
    return [tuple(ranks[axis].index(point[axis]) for axis in found) for point in points]


def in_turn(dimensions: list[list[Ring]]) -> Ring:
    """Dimensions one after the other, each with the rings of its parallel lines, as one ring.

    A dimension is as slow as the worst of its lines, and its buffer is what those before it have left of the whole.
    """
    members = prod(lines[0].members for lines in dimensions)
    seconds, seconds_per_byte, left = 0.0, 0.0, 1.0
    shares: Counter[int] = Counter()
    for lines in dimensions:
        count = lines[0].members
        seconds += (count - 1) * max(ring.latency for ring in lines)
        seconds_per_byte += (count - 1) / count * left / min(ring.bandwidth for ring in lines)
        for ring in lines:
            shares.update({link: share * left for link, share in ring.shares.items()})
        left /= count
    return as_flat(members, seconds, seconds_per_byte, shares)


def as_flat(members: int, seconds: float, seconds_per_byte: float, shares: Counter[int]) -> Ring:
    """The flat ring that takes these seconds and as many more for each byte.

    Its figures are rounded, so that orders in which they are the same numbers in another order are seen to be equal.
    """
    latency, bandwidth = seconds / (members - 1), (members - 1) / members / seconds_per_byte
    return Ring(members, float(f"{latency:.12g}"), float(f"{bandwidth:.12g}"), dict(shares))


def front(rings) -> list[Ring]:
    """Those that no other beats in latency and bandwidth; of equal ones the first."""
    figures: dict[tuple[float, float], Ring] = {}
    for ring in rings:
        figures.setdefault((ring.latency, ring.bandwidth), ring)
    return [figures[each] for each in unbeaten(figures)]


def unbeaten(figures) -> list[tuple[float, float]]:
    """The pairs of latency and bandwidth of which no other is better in one and as good in the other."""
    kept, widest = [], -inf
    for latency, bandwidth in sorted(figures, key=lambda each: (each[0], -each[1])):
        if bandwidth > widest:
            kept.append((latency, bandwidth))
            widest = bandwidth
    return kept
