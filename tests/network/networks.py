"""Networks for tests, built without nest's own builders."""

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
