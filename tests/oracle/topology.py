"""Section 1 of PROBLEM.md, arbitrary networks: devices and switches, directed links, and the path of every pair."""

from dataclasses import dataclass
from itertools import product
from math import fsum, inf, prod

SWITCHES = {"switch", "router"}


@dataclass(frozen=True)
class Link:
    """One direction of a link.

    `capacity` is what all that cross it share, bytes per second: infinite where the link is not shared.
    """

    source: int
    target: int
    bandwidth: float
    latency: float
    capacity: float


class Topology:
    """A network as `cluster.topology` writes it, devices in the order of the file.

    Attributes:
        names: of the devices.
        size: how many there are.
        links: every direction of every link.
        neighbours: for each device those that a link joins it to; None where there are switches, or where pairs were
            measured and nobody knows what joins them.
    """

    def __init__(self, topology: dict) -> None:
        written = measured(topology["matrix"]) if "matrix" in topology else self.graph(topology)
        nodes, self.devices, rows, shared = written
        self.names = [nodes[device] for device in self.devices]
        self.size = len(self.devices)
        own = set(self.devices)
        self.links = [
            Link(*ends, bandwidth, latency, bandwidth if shared or own & set(ends) else inf)
            for one, two, bandwidth, latency in rows
            for ends in ((one, two), (two, one))
        ]
        self.leaving: list[list[int]] = [[] for _ in nodes]
        for index, link in enumerate(self.links):
            self.leaving[link.source].append(index)
        place = {device: index for index, device in enumerate(self.devices)}
        reached = [self.paths_from(device) for device in self.devices]
        self.path = [[paths[device] for device in self.devices] for paths in reached]
        self.latency = [[fsum(self.links[e].latency for e in path) for path in paths] for paths in self.path]
        self.bandwidth = [
            [min((self.links[e].bandwidth for e in path), default=inf) for path in paths] for paths in self.path
        ]
        self.neighbours: list[set[int]] | None = None
        if "matrix" not in topology and len(nodes) == self.size:
            self.neighbours = [{place[self.links[e].target] for e in self.leaving[device]} for device in self.devices]

    def graph(self, topology: dict) -> tuple:
        for kind in ("torus", "mesh"):
            if kind in topology:
                return grid(**topology[kind], closes=kind == "torus")
        return node_link(topology)

    def paths_from(self, source: int) -> dict[int, list[int]]:
        """The links of the path to every node: fewest hops, then the widest, then by the order of the file.

        The predecessor of a node is, of its neighbours one hop nearer, one whose own path and last link are widest; of
        several the one whose link is listed first.
        """
        found: dict[int, list[int]] = {source: []}
        width = {source: inf}
        front = [source]
        while front:
            best: dict[int, tuple[float, int]] = {}
            for node in front:
                for index in self.leaving[node]:
                    link = self.links[index]
                    if link.target in found:
                        continue
                    # Of equal widths the lower index: a link and its way back have neighbouring ones.
                    offer = (-min(width[node], link.bandwidth), index)
                    best[link.target] = min(best.get(link.target, (inf, 0)), offer)
            for node, (width_less, index) in best.items():
                found[node] = [*found[self.links[index].source], index]
                width[node] = -width_less
            front = list(best)
        return found

    def message(self, size: float, source: int, target: int) -> float:
        """Seconds of a message alone."""
        return self.latency[source][target] + size / self.bandwidth[source][target] if size else 0.0


def measured(matrix: dict) -> tuple:
    """A link for every pair; of both directions the lower bandwidth and the higher latency count."""
    bandwidth = matrix["bandwidth"]
    count = len(bandwidth)
    given = matrix.get("latency", 0.0)
    latency = given if isinstance(given, list) else [[given] * count for _ in range(count)]
    names = matrix.get("names") or [str(index) for index in range(count)]
    rows = [
        (one, two, min(bandwidth[one][two], bandwidth[two][one]), max(latency[one][two], latency[two][one]))
        for one in range(count)
        for two in range(one + 1, count)
    ]
    return names, list(range(count)), rows, True


def grid(shape, bandwidth: float, latency: float = 0.0, wrap=True, *, closes: bool) -> tuple:
    """Devices at the points of a grid, the last dimension fastest.

    The links come in the order of the devices, those of one in the order of dimensions: each to the next device along
    a dimension, or from the last one of a row of three and more to the first where rows close.
    """
    wraps = wrap if isinstance(wrap, list) else [wrap] * len(shape)
    points = list(product(*map(range, shape)))
    rows = []
    for index, point in enumerate(points):
        for dimension, length in enumerate(shape):
            stride = prod(shape[dimension + 1 :])
            if point[dimension] + 1 < length:
                rows.append((index, index + stride, bandwidth, latency))
            elif closes and wraps[dimension] and length > 2:
                rows.append((index, index - (length - 1) * stride, bandwidth, latency))
    return [",".join(map(str, point)) for point in points], list(range(len(points))), rows, True


def node_link(graph: dict) -> tuple:
    """Node-link data; links of the same two nodes are one, as wide as all together and as slow as the slowest."""
    usual = graph.get("graph", {})
    names = [str(node["id"]) for node in graph["nodes"]]
    devices = [index for index, node in enumerate(graph["nodes"]) if node.get("kind", "device") not in SWITCHES]
    bundles: dict[frozenset[int], tuple[int, int, float, float]] = {}
    for link in graph.get("edges") or graph["links"]:
        one, two = names.index(str(link["source"])), names.index(str(link["target"]))
        bandwidth = link.get("bandwidth", usual.get("bandwidth"))
        latency = link.get("latency", usual.get("latency", 0.0))
        *_, wide, slow = bundles.get(frozenset((one, two)), (one, two, 0.0, 0.0))
        bundles[frozenset((one, two))] = (one, two, wide + bandwidth, max(slow, latency))
    return names, devices, list(bundles.values()), usual.get("shared", True)
