"""Networks for tests, built without nest's own builders."""

from collections import defaultdict
from collections.abc import Sequence
from math import prod

import networkx
from hypothesis import strategies as st

from nest.network import LinkGraph
from nest.network.graph import link_graph

Link = tuple[int, int, float, float]


def tree(fanouts: Sequence[int], bandwidths: Sequence[float], latencies: Sequence[float]) -> LinkGraph:
    """A tree of switches whose levels have these bandwidths per device and these latencies from end to end.

    A switch's link upwards carries all devices below; each half of a way gets half of what a level adds in latency.
    """
    count = prod(fanouts)
    names = [f"device {index}" for index in range(count)]
    links: list[Link] = []
    below, capacity, passed = list(range(count)), 1, 0.0
    for fanout, bandwidth, latency in zip(fanouts, bandwidths, latencies, strict=True):
        parents = []
        for first in range(0, len(below), fanout):
            names.append(f"switch {len(names)}")
            parents.append(len(names) - 1)
            for child in below[first : first + fanout]:
                links.append((child, parents[-1], bandwidth * capacity, (latency - passed) / 2))
        below, capacity, passed = parents, capacity * fanout, latency
    return link_graph(names, [index < count for index in range(len(names))], links)


def shuffled(graph: LinkGraph, order: Sequence[int]) -> LinkGraph:
    """The same network with node `order[i]` in place `i`."""
    place = {node: index for index, node in enumerate(order)}
    is_device = graph.is_device
    rows = zip(graph.ends.tolist(), graph.bandwidth.tolist(), graph.latency.tolist(), strict=True)
    return link_graph(
        [graph.names[node] for node in order],
        [bool(is_device[node]) for node in order],
        [(place[one], place[two], bandwidth, latency) for (one, two), bandwidth, latency in rows],
    )


@st.composite
def random_graphs(draw: st.DrawFn, *, switches: bool = False, most: int = 8) -> LinkGraph:
    """Connected graphs of devices, and of switches if asked."""
    count = draw(st.integers(2, most))
    values = st.sampled_from([1e9, 2e9, 5e9, 50e9])
    delays = st.sampled_from([0.0, 1e-6, 2e-6, 7e-6])
    links = {(draw(st.integers(0, node - 1)), node) for node in range(1, count)}
    extra = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(lambda pair: pair[0] < pair[1])
    links |= draw(st.sets(extra, max_size=count))
    kinds = [True, True, *(draw(st.booleans()) if switches else True for _ in range(count - 2))]
    return link_graph(
        [f"n{index}" for index in range(count)],
        kinds,
        [(one, two, draw(values), draw(delays)) for one, two in sorted(links)],
    )


def as_networkx(graph: LinkGraph) -> "networkx.Graph[int]":
    found: networkx.Graph[int] = networkx.Graph()
    found.add_nodes_from(range(len(graph.names)))
    rows = zip(graph.ends.tolist(), graph.bandwidth.tolist(), graph.latency.tolist(), strict=True)
    for (one, two), bandwidth, latency in rows:
        found.add_edge(one, two, bandwidth=bandwidth, latency=latency)
    return found


Sent = dict[tuple[int, int], float]
"""What goes over each directed link."""


def best_ways(graph: LinkGraph, source: int) -> tuple[dict[int, int], dict[int, list[int]]]:
    """Hops to each node, and the neighbours over which its ways of fewest hops are the widest."""
    whole = as_networkx(graph)
    hops = dict(networkx.single_source_shortest_path_length(whole, source))
    width, before = {source: float("inf")}, dict[int, list[int]]()
    for node in sorted(hops, key=hops.__getitem__)[1:]:
        offers = {
            near: min(width[near], whole.edges[near, node]["bandwidth"])
            for near in whole[node]
            if hops[near] == hops[node] - 1
        }
        width[node] = max(offers.values())
        before[node] = [near for near, offer in offers.items() if offer == width[node]]
    return hops, before


def sent_over(before: dict[int, list[int]], source: int, target: int) -> Sent:
    """What goes over each link of one unit from source to target, all ways alike."""

    def ways(node: int) -> int:
        return 1 if node == source else sum(ways(near) for near in before[node])

    flow: Sent = defaultdict(float)

    def send(node: int, amount: float) -> None:
        for near in before.get(node, []):
            part = amount * ways(near) / ways(node)
            flow[near, node] += part
            send(near, part)

    send(target, 1.0)
    return dict(flow)


def all_sending(graph: LinkGraph) -> tuple[dict[int, Sent], dict[tuple[int, int], Sent]]:
    """By distance, what links carry when every device sends one unit, evenly to all so far away; and for each pair.

    Worked out device by device and way by way.
    """
    devices = graph.devices.tolist()
    totals: dict[int, Sent] = defaultdict(lambda: defaultdict(float))
    pairs: dict[tuple[int, int], Sent] = {}
    for source in devices:
        hops, before = best_ways(graph, source)
        for target in devices:
            if source != target:
                peers = sum(hops[other] == hops[target] for other in devices)
                pairs[source, target] = sent_over(before, source, target)
                for link, part in pairs[source, target].items():
                    totals[hops[target]][link] += part / peers
    return dict(totals), pairs
