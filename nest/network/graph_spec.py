"""Graphs as written, to networks and back."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from nest.errors import InputError
from nest.io import structure
from nest.network.graph import LinkGraph, NetworkBuilder, check_size
from nest.spec import GraphSpec
from nest.spec.topology import DEVICE_WORDS, SWITCH_WORDS, LinkSpec, NodeSpec

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
"""Attributes with their unit in the name, as scripts like to write them: nest's name and the size of the unit in SI."""


def read_graph(mapping: Mapping[str, Any]) -> LinkGraph:
    """The network that node-link data describe.

    Raises:
        InputError: it is no graph, something in it cannot be, or it is too large; sentences begin with the path.
    """
    for key, what in (("nodes", "nodes"), ("edges", "links"), ("links", "links")):
        items = mapping.get(key)
        if isinstance(items, (list, tuple)):
            check_size(0, *((len(items), 0) if what == "nodes" else (0, len(items) // 2)))
    usual = {key: _usual(value) if key in ("nodes", "edges", "links") else value for key, value in mapping.items()}
    return _network(structure(usual, GraphSpec))


def written_graph(graph: LinkGraph) -> dict[str, Any]:
    """`graph` as node-link data that `read_graph` reads to the same network."""
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
    """Attributes under the names nest gives them."""
    if not isinstance(items, (list, tuple)):
        return items
    return [_renamed(item) if isinstance(item, Mapping) else item for item in items]


def _renamed(attributes: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(attributes)
    for name, (usual, unit) in SYNONYMS.items():
        value = found.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and usual not in found:
            found[usual] = value * unit
            del found[name]
    return found


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
    """Add a node; the numbers its links lead to."""
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
    """Refuse a link that is listed from both of its ends: one link in two directions, or two, nobody says."""
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
    """Links with bandwidth and latency; of a directed graph one for both directions, as bad as the worse."""
    found: list[tuple[LinkSpec, float, float]] = []
    for index, link in enumerate(links):
        given = spec.graph.bandwidth if link.bandwidth is None else link.bandwidth
        if given is None:
            near = get_close_matches("bandwidth", link.other, n=1)
            hint = f" Did you mean it by {near[0]!r}?" if near else ""
            raise InputError(
                f"{key}[{index}].bandwidth is missing; give it in bytes per second (`bandwidth: 50 GB/s`), "
                f"or one for all links as graph.bandwidth.{hint}"
            )
        found.append((link, given, spec.graph.latency if link.latency is None else link.latency))
    if not spec.directed:
        if not spec.multigraph:
            _check_once(key, links)
        return found
    ways: dict[tuple[str, str], tuple[LinkSpec, float, float]] = {}
    for link, bandwidth, latency in found:
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
