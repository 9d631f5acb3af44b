"""Devices and switches joined by links, and their node-link files."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.errors import InputError
from nest.io import structure
from nest.spec import GraphSpec
from nest.spec.topology import DEVICE_WORDS, SWITCH_WORDS, LinkSpec, NodeSpec

if TYPE_CHECKING:
    import networkx

MOST_DEVICES = 4096  # Most devices: matrices over pairs take 18 bytes a pair, 300 MB in all.

MOST_NODES = 16_384
"""Most devices and switches: a fat tree has fewer switches per device than one, so four times `MOST_DEVICES`."""

MOST_LINKS = 131_072
"""Most links: eight for each of `MOST_NODES`; paths are searched from every device over every link."""

REFERENCE_MESSAGE = 2.0**20
"""Bytes: at 50 GB/s such a message takes 21 us, so that bandwidth decides and latencies of microseconds still count."""

Node = TypeVar("Node", bound=Hashable)
Numbers = NDArray[numpy.int64]
Floats = NDArray[numpy.float64]


@frozen(eq=False)
class LinkGraph:
    """Devices and switches joined by links; connected, with positive bandwidths.

    Attributes:
        names: of the nodes, unique.
        devices: nodes that are devices, ascending.
        ends: two nodes of each link (links by 2).
        bandwidth: of each link, bytes per second and direction.
        latency: of each link, seconds.
        shared: the devices behind a link between switches share it; if not, each device gets its bandwidth.
    """

    names: tuple[str, ...]
    devices: Numbers
    ends: Numbers
    bandwidth: Floats
    latency: Floats
    shared: bool = True

    def __attrs_post_init__(self) -> None:
        _check_connected(self)

    @property
    def is_device(self) -> NDArray[numpy.bool_]:
        """Mask of nodes that are devices."""
        mask = numpy.zeros(len(self.names), dtype=bool)
        mask[self.devices] = True
        return mask

    @property
    def trunks(self) -> NDArray[numpy.bool_]:
        """Mask of links between two switches."""
        at_device = self.is_device[self.ends]
        return ~(at_device[:, 0] | at_device[:, 1])

    def to_networkx(self) -> "networkx.Graph[str]":
        """Convert to a networkx graph: nodes have a `kind`, edges `bandwidth` and `latency`, the graph has `shared`."""
        from networkx import node_link_graph

        return node_link_graph(written_graph(self), directed=False, multigraph=False, edges="edges")

    @classmethod
    def from_networkx(cls, graph: "networkx.Graph[Any]") -> "LinkGraph":
        """Read a networkx graph with the attributes of node-link data (docs/reference/topologies.md).

        Raises:
            InputError: invalid content, or too large.
        """
        from networkx import node_link_data

        return read_graph(dict(node_link_data(graph, edges="edges")))


def check_size(devices: int, nodes: int, links: int) -> None:
    """Refuse a network that is too large, before it is built.

    Raises:
        InputError: too many devices, nodes or links; the text has the limit.
    """
    for count, most, what in (
        (devices, MOST_DEVICES, "devices"),
        (nodes, MOST_NODES, "nodes"),
        (links, MOST_LINKS, "links"),
    ):
        if count > most:
            raise InputError(
                f"the network has {count} {what}; networks of up to {most} {what} are reduced to levels. "
                "Write a larger one as `levels`."
            )


def link_graph(
    names: Sequence[str],
    is_device: Sequence[bool],
    links: Sequence[tuple[int, int, float, float]],
    *,
    shared: bool = True,
) -> LinkGraph:
    """Graph of `links`: two nodes, bandwidth and latency each; parallel links are bundled.

    A bundle has the sum of the bandwidths and the largest latency.

    Args:
        names: of the nodes.
        is_device: for each node, whether it is a device (or a switch).
        links: two nodes as indices into `names`, bytes per second and direction, and seconds, of each link.
        shared: see `LinkGraph`.

    Raises:
        InputError: nodes share a name, a link joins a node to itself, there are fewer than two devices, the graph is
            disconnected, or it is too large.
    """
    check_size(sum(is_device), len(names), len(links))
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"the network has several nodes called {name!r:.60}; give each node a name of its own.")
        seen.add(name)
    if sum(is_device) < 2:
        devices_text = "one device" if sum(is_device) else "no devices"
        raise InputError(f"the network has {devices_text}; it must join at least two nodes of the kind `device`.")
    bundles: dict[tuple[int, int], tuple[float, float]] = {}
    for one, two, bandwidth, latency in links:
        if one == two:
            raise InputError(f"the network has a link from {names[one]!r:.60} to itself; leave it out.")
        ends = (min(one, two), max(one, two))
        known = bundles.get(ends, (0.0, 0.0))
        bundles[ends] = (known[0] + bandwidth, max(known[1], latency))
    return LinkGraph(
        names=tuple(names),
        devices=numpy.flatnonzero(is_device),
        ends=numpy.array(list(bundles), dtype=numpy.int64).reshape(-1, 2),
        bandwidth=numpy.array([bandwidth for bandwidth, _ in bundles.values()]),
        latency=numpy.array([latency for _, latency in bundles.values()]),
        shared=shared,
    )


def components(members: Iterable[Node], links: Iterable[tuple[Node, Node]]) -> list[list[Node]]:
    """Connected groups of members, each in the order listed, by their first."""
    leader = {member: member for member in members}

    def leading(member: Node) -> Node:
        while leader[member] != member:
            leader[member] = leader[leader[member]]
            member = leader[member]
        return member

    for one, two in links:
        leader[leading(two)] = leading(one)
    groups: dict[Node, list[Node]] = {}
    for member in leader:
        groups.setdefault(leading(member), []).append(member)
    return list(groups.values())


def _check_connected(graph: LinkGraph) -> None:
    first = int(graph.devices[0])
    groups = components(range(len(graph.names)), graph.ends.tolist())
    lost = sorted(node for group in groups if first not in group for node in group)
    if lost:
        others = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        raise InputError(
            f"the network is not connected: no links lead from {graph.names[first]!r:.60} to "
            f"{graph.names[lost[0]]!r:.60}{others}."
        )


class NetworkBuilder:
    """Nodes and links in the order in which they are added."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._is_device: list[bool] = []
        self._links: list[tuple[int, int, float, float]] = []

    def device(self, name: str) -> int:
        """Add a device; return its number."""
        return self._node(name, is_device=True)

    def switch(self, name: str) -> int:
        """Add a switch; return its number."""
        return self._node(name, is_device=False)

    def link(self, one: int, two: int, bandwidth: float, latency: float) -> None:
        """Add a link: two nodes, bytes per second and direction, seconds."""
        self._links.append((one, two, bandwidth, latency))

    def built(self, *, shared: bool = True) -> LinkGraph:
        """Build the network.

        Raises:
            InputError: it is none; see `link_graph`.
        """
        return link_graph(self._names, self._is_device, self._links, shared=shared)

    def _node(self, name: str, *, is_device: bool) -> int:
        self._names.append(name)
        self._is_device.append(is_device)
        return len(self._names) - 1


def grid(shape: Sequence[int], wrap: Sequence[bool], bandwidth: float, latency: float) -> LinkGraph:
    """Devices at the points of a grid, named by their coordinates (`0,3,1`), numbered with the last varying fastest.

    Args:
        shape: devices along each dimension.
        wrap: for each dimension, whether its rows close to rings; two devices in a row always have one link.
        bandwidth: of one link, bytes per second and direction.
        latency: of one link, seconds.

    Raises:
        InputError: there are too many devices, or fewer than two.
    """
    count = prod(shape)
    check_size(count, count, count * len(shape))
    strides = [prod(shape[dimension + 1 :]) for dimension in range(len(shape))]
    points = list(product(*(range(length) for length in shape)))
    links = []
    for index, point in enumerate(points):
        for length, stride, closed, place in zip(shape, strides, wrap, point, strict=True):
            if place + 1 < length:
                links.append((index, index + stride, bandwidth, latency))
            elif closed and length > 2:
                links.append((index, index - place * stride, bandwidth, latency))
    return link_graph([",".join(map(str, point)) for point in points], [True] * count, links)


SYNONYMS: Mapping[str, tuple[str, float]] = {
    "gpus": ("devices", 1),
    "bw_GBps": ("bandwidth", 1e9),
    "bandwidth_GBps": ("bandwidth", 1e9),
    "bw_Gbps": ("bandwidth", 1e9 / 8),
    "bandwidth_Gbps": ("bandwidth", 1e9 / 8),
    "lat_us": ("latency", 1e-6),
    "latency_us": ("latency", 1e-6),
    "lat_ns": ("latency", 1e-9),
    "latency_ns": ("latency", 1e-9),
}
"""Attributes with their unit in the name: nest's name, and the unit in SI."""


def read_graph(mapping: Mapping[str, Any]) -> LinkGraph:
    """Read node-link data.

    Raises:
        InputError: no graph, invalid content, or too large; sentences begin with the path.
    """
    for key, what in (("nodes", "nodes"), ("edges", "links"), ("links", "links")):
        items = mapping.get(key)
        if isinstance(items, (list, tuple)):
            check_size(0, *((len(items), 0) if what == "nodes" else (0, len(items) // 2)))
    usual = {key: _usual(value) if key in ("nodes", "edges", "links") else value for key, value in mapping.items()}
    return _network(structure(usual, GraphSpec))


def written_graph(graph: LinkGraph) -> dict[str, Any]:
    """Convert `graph` to node-link data for `read_graph`."""
    devices = set(graph.devices.tolist())
    kinds = ["device" if index in devices else "switch" for index in range(len(graph.names))]
    rows = zip(graph.ends.tolist(), graph.bandwidth.tolist(), graph.latency.tolist(), strict=True)
    return {
        "graph": {"shared": graph.shared},
        "nodes": [{"id": name, "kind": kind} for name, kind in zip(graph.names, kinds, strict=True)],
        "edges": [
            {"source": graph.names[one], "target": graph.names[two], "bandwidth": bandwidth, "latency": latency}
            for (one, two), bandwidth, latency in rows
        ],
    }


def _usual(items: Any) -> Any:
    if not isinstance(items, (list, tuple)):
        return items
    return [_renamed(item) if isinstance(item, Mapping) else item for item in items]


def _renamed(attributes: Mapping[str, Any]) -> dict[str, Any]:
    renamed = dict(attributes)
    for name, (usual, unit) in SYNONYMS.items():
        value = renamed.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and usual not in renamed:
            renamed[usual] = value * unit
            del renamed[name]
    return renamed


def _network(spec: GraphSpec) -> LinkGraph:
    if spec.edges and spec.links:
        raise InputError("edges and links are two names for the same; give one of them.")
    key, links = ("edges", spec.edges) if spec.edges else ("links", spec.links)
    check_size(sum(node.devices for node in spec.nodes if node.kind in DEVICE_WORDS), len(spec.nodes), 0)
    network = NetworkBuilder()
    places: dict[str, tuple[int, ...]] = {}
    for node in spec.nodes:
        name = str(node.id)
        if name in places:
            raise InputError(f"nodes: several are called {name!r:.60}; give each node a name of its own.")
        places[name] = _placed(network, node, name)
    for index, (link, bandwidth, latency) in enumerate(_directions_joined(spec, key, links)):
        ends = [_known(places, str(end), f"{key}[{index}]") for end in (link.source, link.target)]
        if str(link.source) == str(link.target):
            raise InputError(f"{key}[{index}] links {link.source!r:.60} to itself; leave it out.")
        for one in ends[0]:
            for two in ends[1]:
                network.link(one, two, bandwidth / (len(ends[0]) * len(ends[1])), latency)
    return network.built(shared=spec.graph.shared)


def _placed(network: NetworkBuilder, node: NodeSpec, name: str) -> tuple[int, ...]:
    """Add a node; return the numbers of its links' ends."""
    if node.kind in SWITCH_WORDS:
        return (network.switch(name),)
    if node.devices == 1:
        return (network.device(name),)
    members = tuple(network.device(f"{name}.{index}") for index in range(node.devices))
    if node.bandwidth is not None:
        inside = network.switch(f"{name} inside")
        for member in members:
            network.link(member, inside, node.bandwidth, node.latency / 2)
    return members


def _known(places: Mapping[str, tuple[int, ...]], name: str, place: str) -> tuple[int, ...]:
    if name not in places:
        raise InputError(f"{place} names {name!r:.60}, which is not among the nodes.")
    return places[name]


def _check_once(key: str, links: Sequence[LinkSpec]) -> None:
    """Refuse a link listed from both of its ends, which may mean one link or two."""
    first: dict[tuple[str, str], int] = {}
    for index, link in enumerate(links):
        back = first.get((str(link.target), str(link.source)))
        if back is not None and link.source != link.target:
            raise InputError(
                f"{key}[{index}] is {key}[{back}] the other way round; write `directed: true` where each is one "
                "direction of a link, or `multigraph: true` where they are two links, whose bandwidths add up."
            )
        first.setdefault((str(link.source), str(link.target)), index)


def _directions_joined(spec: GraphSpec, key: str, links: Sequence[LinkSpec]) -> list[tuple[LinkSpec, float, float]]:
    """Links with bandwidth and latency; a directed graph's pairs become one, as bad as the worse direction."""
    result: list[tuple[LinkSpec, float, float]] = []
    for index, link in enumerate(links):
        given = spec.graph.bandwidth if link.bandwidth is None else link.bandwidth
        if given is None:
            near = get_close_matches("bandwidth", link.other, n=1)
            hint = f" Did you mean it by {near[0]!r}?" if near else ""
            raise InputError(
                f"{key}[{index}].bandwidth is missing; give it in bytes per second (`bandwidth: 50 GB/s`), "
                f"or one for all links as graph.bandwidth.{hint}"
            )
        result.append((link, given, spec.graph.latency if link.latency is None else link.latency))
    if not spec.directed:
        if not spec.multigraph:
            _check_once(key, links)
        return result
    ways: dict[tuple[str, str], tuple[LinkSpec, float, float]] = {}
    for link, bandwidth, latency in result:
        ends = (str(link.source), str(link.target))
        _, known, slowest = ways.get(ends, (link, 0.0, 0.0))
        ways[ends] = (link, known + bandwidth, max(slowest, latency))
    joined = []
    for (source, target), (link, bandwidth, latency) in ways.items():
        back = ways.get((target, source))
        if back is None:
            raise InputError(f"{key}: there is a link from {source!r:.60} to {target!r:.60} and none back; give both.")
        if source <= target:
            joined.append((link, min(bandwidth, back[1]), max(latency, back[2])))
    return joined
