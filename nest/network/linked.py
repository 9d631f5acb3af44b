"""Networks from links or from a measured matrix (PROBLEM.md section 1, "Arbitrary network")."""

from collections.abc import Sequence
from functools import lru_cache

import numpy
from attrs import evolve

from nest.instance.network import Ring
from nest.instance.pairs import Pairs
from nest.network.graph import Floats, LinkGraph, Numbers
from nest.network.least import BestRings
from nest.network.paths import ATTOSECONDS, Directed, directed, first_of_each, whole_attoseconds
from nest.network.product import DeviceLinks, Product, product
from nest.network.rings import Rings
from nest.network.routes import Routes

MOST_PATHS = 65_536  # Paths kept: a search repeats them.


class PathNetwork:
    """`NetworkModel` on actual links."""

    def __init__(self, routes: Routes, product: Product | None, *, all_ports: bool = False) -> None:
        """A network of these routes and dimensions, if any.

        `all_ports`: collectives drive all ports of a device at once.
        """
        self._routes = routes
        self._product = product
        self._path = lru_cache(maxsize=MOST_PATHS)(routes.path)
        self._rings = Rings(routes, product, all_ports=all_ports)
        self._least = BestRings(routes, product, all_ports=all_ports)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the devices."""
        return self._routes.names

    @property
    def bandwidth(self) -> Floats:
        """Smallest bandwidth on the path of every two devices, bytes per second; infinite on the diagonal."""
        return self._routes.bandwidth

    @property
    def latency(self) -> Floats:
        """Sum of latencies on the path of every two devices, seconds; 0 on the diagonal."""
        return self._routes.latency

    @property
    def link_bandwidth(self) -> Floats:
        """Bytes per second of each directed link; infinite if unshared."""
        return self._routes.link_bandwidth

    @property
    def routes(self) -> Routes:
        """Paths, with the directed links' ends."""
        return self._routes

    @property
    def dimensions(self) -> Product | None:
        """Places of devices along dimensions; None: the network is no product."""
        return self._product

    def path(self, source: int, target: int) -> Numbers:
        """Directed links of the path between two devices, in order."""
        return self._path(source, target)

    def paths(self, sources: Numbers, targets: Numbers) -> tuple[Numbers, Numbers]:
        """Directed links of many paths, in no order: index of the path, and the link."""
        return self._routes.paths(sources, targets)

    def rings(self, members: Sequence[int]) -> tuple[Ring, ...]:
        """Undominated ways to run a collective over at least two devices, by ascending latency."""
        return self._rings.over(members)

    def least_rings(self, count: int) -> tuple[tuple[float, float], ...]:
        """Latencies and bandwidths; for each buffer, one is at least as fast as any ring over `count` devices."""
        return self._least.of(count)


def network_model(
    network: LinkGraph | Pairs, order: Numbers | None = None, *, all_ports: bool = False, slower: float = 1.0
) -> PathNetwork:
    """Model of the actual network.

    Args:
        network: links, or a measured matrix: a directed link for every ordered pair.
        order: for each device of the cluster's levels, its place among the devices of the file (`Reduction.order`);
            None: as in the file.
        all_ports: collectives drive all ports of a device at once.
        slower: slow-down of a calibration (`cluster.calibration`): divides bandwidths, multiplies latencies.
    """
    if isinstance(network, Pairs):
        placed = numpy.arange(network.size) if order is None else order
        return PathNetwork(measured_routes(network, placed, slower), None, all_ports=all_ports)
    placed = numpy.arange(len(network.devices)) if order is None else order
    found = linked_routes(network, placed, slower)
    return PathNetwork(found, _dimensions(network, found, placed, slower), all_ports=all_ports)


def _dimensions(graph: LinkGraph, found: Routes, order: Numbers, slower: float) -> Product | None:
    """Dimensions of a network with these routes, numbered as in the file."""
    links = _between_devices(graph)
    if links is None:
        return None
    latency = whole_attoseconds(links.latency * slower) / ATTOSECONDS
    back = numpy.argsort(order)
    hops = found.hops[numpy.ix_(back, back)]
    if len(graph.devices) < len(graph.names):
        hops = numpy.maximum(hops - 2, 0)  # From a device to its router and from a router to its device.
    dimensions = product(evolve(links, bandwidth=links.bandwidth / slower, latency=latency), hops)
    return None if dimensions is None else evolve(dimensions, place=dimensions.place[order])


def measured_routes(pairs: Pairs, order: Numbers, slower: float = 1.0) -> Routes:
    """Routes of a measured matrix: a directed link for every ordered pair.

    Args:
        order: for each device, its row of `pairs`.
        slower: factor on all times.
    """
    count = pairs.size
    bandwidth = pairs.bandwidth / slower
    latency = whole_attoseconds(pairs.latency * slower) / ATTOSECONDS
    rows, device = numpy.ix_(order, order), numpy.arange(count)
    return Routes(
        names=tuple(pairs.names[row] for row in order),
        bandwidth=bandwidth[rows],
        latency=latency[rows],
        hops=(device[:, None] != device[None, :]).astype(numpy.int64),
        link_bandwidth=bandwidth.reshape(-1),
        nodes=order,
        tails=numpy.repeat(device, count),
        heads=numpy.tile(device, count),
        last=None,
    )


def linked_routes(graph: LinkGraph, order: Numbers, slower: float = 1.0) -> Routes:
    """Routes of a graph: of the paths with the fewest hops the widest (RFC 2676), ties by the order of the file.

    Each node is reached over the neighbour one hop nearer with the widest path, counting the link from there; ties go
    to the link listed first. Devices forward. Link `e` of the graph is the directed links `2 * e` (from its first to
    its second end) and `2 * e + 1`.

    Args:
        graph: at least two devices.
        order: for each device, its place among the devices of `graph`.
        slower: factor on all times.
    """
    walked = directed(graph)
    nodes = graph.devices[order]
    count, at_once = len(nodes), walked.sources_at_once()
    width, delay = graph.bandwidth / slower, whole_attoseconds(graph.latency * slower)
    bandwidth, latency = numpy.empty((count, count)), numpy.empty((count, count))
    hops = numpy.empty((count, count), dtype=numpy.int64)
    last = numpy.empty((count, walked.nodes), dtype=numpy.int32)
    for start in range(0, count, at_once):
        rows = slice(start, start + at_once)
        found = _walk(walked, nodes[rows], width, delay)
        widest, total, fewest, links = (values.reshape(-1, walked.nodes) for values in found)
        bandwidth[rows], latency[rows], hops[rows] = widest[:, nodes], total[:, nodes], fewest[:, nodes]
        last[rows] = links
    latency /= ATTOSECONDS
    shared = width if graph.shared else numpy.where(graph.trunks, numpy.inf, width)
    return Routes(
        names=tuple(graph.names[node] for node in nodes),
        bandwidth=bandwidth,
        latency=latency,
        hops=hops,
        link_bandwidth=numpy.repeat(shared, 2),
        nodes=nodes,
        tails=graph.ends.reshape(-1),
        heads=graph.ends[:, ::-1].reshape(-1),
        last=last,
    )


def _walk(walked: Directed, sources: Numbers, width: Floats, delay: Floats) -> tuple[Floats, Floats, Numbers, Numbers]:
    """Bandwidth, latency (attoseconds), hops and last directed link from each source to each node, flat."""
    states = len(sources) * walked.nodes
    hops, marks = numpy.full(states, -1, dtype=numpy.int64), numpy.zeros(states, dtype=numpy.int64)
    best, total = numpy.zeros(states), numpy.zeros(states)
    none = numpy.iinfo(numpy.int64).max
    last = numpy.full(states, none)
    front = numpy.arange(len(sources)) * walked.nodes + sources
    hops[front], best[front] = 0, numpy.inf
    depth = 0
    while len(front):
        depth += 1
        position, taken, reached = walked.steps(front)
        fresh = hops[reached] < 0
        origin, taken, reached = front[position[fresh]], taken[fresh], reached[fresh]
        widths = numpy.minimum(best[origin], width[walked.link[taken]])
        numpy.maximum.at(best, reached, widths)
        widest = widths == best[reached]
        origin, taken, reached = origin[widest], taken[widest], reached[widest]
        links = 2 * walked.link[taken] + (1 - walked.forward[taken])
        numpy.minimum.at(last, reached, links)
        chosen = links == last[reached]
        total[reached[chosen]] = total[origin[chosen]] + delay[walked.link[taken[chosen]]]
        front = first_of_each(reached, marks)
        hops[front] = depth
    last[last == none] = -1
    return best, total, hops, last


def _between_devices(graph: LinkGraph) -> DeviceLinks | None:
    """Links of a network of devices alone, or of devices with a router each, devices as in the file; None: neither.

    A device's own router is joined to it without latency and at least as fast as to others, so it can be left out.
    """
    count = len(graph.devices)
    device = numpy.full(len(graph.names), -1)
    device[graph.devices] = numpy.arange(count)
    if count == len(graph.names):
        return DeviceLinks(device[graph.ends], graph.bandwidth, graph.latency)
    if 2 * count != len(graph.names):
        return None
    trunks, at_device = graph.trunks, graph.is_device[graph.ends]
    if at_device.all(axis=1).any() or (numpy.bincount(graph.ends[at_device], minlength=1).max() > 1):
        return None
    own = graph.ends[~trunks]
    own = numpy.where(at_device[~trunks][:, :1], own, own[:, ::-1])
    if len(numpy.unique(own[:, 1])) < count or (graph.latency[~trunks] > 0).any() or not trunks.any():
        return None
    router = device.copy()
    router[own[:, 1]] = device[own[:, 0]]
    fastest = numpy.zeros(len(graph.names))
    numpy.maximum.at(fastest, graph.ends[trunks].reshape(-1), numpy.repeat(graph.bandwidth[trunks], 2))
    if (graph.bandwidth[~trunks] < fastest[own[:, 1]]).any():
        return None
    return DeviceLinks(router[graph.ends[trunks]], graph.bandwidth[trunks], graph.latency[trunks])
