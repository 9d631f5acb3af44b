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
    """The rings of a network, remembered."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.points = None if topology.neighbours is None else coordinates(topology.neighbours)
        self.known: dict[tuple[int, ...], list[Ring]] = {}
        self.known_circuits: dict[tuple[int, ...], list[Ring]] = {}

    def cheapest(self, members, size: float) -> Ring:
        """The cheapest ring over two devices or more for a buffer of this size; of several the first."""
        every = self.ways(members)
        least = min(ring.phase(size) for ring in every)
        return next(ring for ring in every if ring.phase(size) <= least * TIE)

    def ways(self, members) -> list[Ring]:
        """The rings that can be the cheapest: circuits, then one dimension after the other in every order."""
        key = tuple(sorted(members))
        if key not in self.known:
            self.known[key] = front([*self.circuits(key), *self.by_dimensions(key)])
        return self.known[key]

    def circuits(self, members: tuple[int, ...]) -> list[Ring]:
        """The circuits that no other beats, in the order of their devices, the lowest first."""
        if members not in self.known_circuits:
            first, *others = members
            figures: dict[tuple[float, float], tuple[int, ...]] = {}
            for rest in permutations(others):
                figures.setdefault(self.figures((first, *rest)), (first, *rest))
            self.known_circuits[members] = [self.circuit(figures[each], *each) for each in unbeaten(figures)]
        return self.known_circuits[members]

    def figures(self, order: tuple[int, ...]) -> tuple[float, float]:
        """The largest latency and the smallest bandwidth of the paths of a circuit."""
        latency, bandwidth = self.topology.latency, self.topology.bandwidth
        slow, wide, one = 0.0, inf, order[-1]
        for two in order:
            slow, wide = max(slow, latency[one][two]), min(wide, bandwidth[one][two])
            one = two
        return slow, wide

    def circuit(self, order: tuple[int, ...], latency: float, bandwidth: float) -> Ring:
        """The flat ring that goes round in this order."""
        count, ends = len(order), zip(order, (*order[1:], order[0]), strict=True)
        crossed = Counter(link for one, two in ends for link in self.topology.path[one][two])
        return Ring(count, latency, bandwidth, {link: n * (count - 1) / count for link, n in crossed.items()})

    def by_dimensions(self, members: tuple[int, ...]) -> list[Ring]:
        """Rings one dimension after the other, where the members are a sub-grid of two dimensions or more."""
        if self.points is None:
            return []
        sides = [sorted({self.points[device][axis] for device in members}) for axis in range(len(self.points[0]))]
        along = [axis for axis, side in enumerate(sides) if len(side) > 1]
        if len(along) < 2 or prod(map(len, sides)) != len(members):
            return []
        parallel = {axis: self.lines(members, axis) for axis in along}
        return [
            ring
            for order in permutations(along)
            for choice in product(*(parallel[axis] for axis in order))
            for ring in [in_turn(choice)]
        ]

    def lines(self, members: tuple[int, ...], axis: int) -> list[list[Ring]]:
        """The choices of a circuit for each of the parallel lines along a dimension that no other choice beats.

        Where latencies may be no higher than some number, each line takes its widest circuit.
        """
        rows: dict[tuple[int, ...], list[int]] = {}
        for device in members:
            point = self.points[device]
            rows.setdefault((*point[:axis], *point[axis + 1 :]), []).append(device)
        offers = [self.circuits(tuple(row)) for row in rows.values()]
        found = []
        for limit in sorted({ring.latency for offer in offers for ring in offer}):
            below = [[ring for ring in offer if ring.latency <= limit] for offer in offers]
            if all(below):
                found.append([max(offer, key=lambda ring: ring.bandwidth) for offer in below])
        return found


def in_turn(choice) -> Ring:
    """Dimensions one after the other, each with the circuits of its parallel lines, as one ring.

    A dimension is as slow as the worst of its lines, and its buffer is what those before it have left of the whole.
    """
    members = prod(lines[0].members for lines in choice)
    seconds, seconds_per_byte, left = 0.0, 0.0, 1.0
    shares: Counter[int] = Counter()
    for lines in choice:
        count = lines[0].members
        seconds += (count - 1) * max(ring.latency for ring in lines)
        seconds_per_byte += (count - 1) / count * left / min(ring.bandwidth for ring in lines)
        for ring in lines:
            shares.update({link: share * left for link, share in ring.shares.items()})
        left /= count
    # Rounded, so that orders whose figures are the same numbers in another order are seen to be equal.
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
