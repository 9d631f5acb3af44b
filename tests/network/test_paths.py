"""What pairs get of their paths when all send, against every path there is."""

import networkx
import numpy
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from nest.network import LinkGraph, forwards, network_model, pairs
from nest.network.graph import grid, link_graph
from tests.network.networks import all_sending, as_networkx, random_graphs


@settings(max_examples=60)
@given(random_graphs(switches=True), st.booleans())
def test_pairs_have_what_they_get_of_their_widest_shortest_paths_when_all_send(graph: LinkGraph, shared: bool) -> None:
    graph = evolve(graph, shared=shared)
    found, whole = pairs(graph), as_networkx(graph)
    totals, each_sends = all_sending(graph)
    devices, switches = graph.devices.tolist(), {*range(len(graph.names))} - {*graph.devices.tolist()}
    assert found.hops is not None

    def share(link: tuple[int, int], far: int) -> float:
        """Of a link, what a device gets at a distance or nearer, in the busier direction."""
        near = [sent for distance, sent in totals.items() if distance <= far]
        busy = max(sent.get(way, 0.0) for sent in near for way in (link, link[::-1]))
        limits = shared or switches.isdisjoint(link)
        return float(whole.edges[link]["bandwidth"]) / max(busy if limits else 1.0, 1.0)

    for one, source in enumerate(devices):
        assert (found.bandwidth[one, one], found.latency[one, one], found.hops[one, one]) == (numpy.inf, 0.0, 0)
        for two, target in enumerate(devices):
            if one != two:
                hops = networkx.shortest_path_length(whole, source, target)
                ways = [way for pair in ((source, target), (target, source)) for way in each_sends[pair]]
                assert found.hops[one, two] == hops
                assert found.bandwidth[one, two] == pytest.approx(min(share(way, hops) for way in ways), rel=1e-8)


@pytest.mark.longer
@given(random_graphs(switches=True))
def test_a_message_alone_takes_the_latency_of_its_pair_and_no_less_bandwidth(graph: LinkGraph) -> None:
    found, alone = pairs(graph), network_model(graph)
    assert (alone.bandwidth >= found.bandwidth).all()
    assert (numpy.maximum(alone.latency, alone.latency.T) == found.latency).all()


@pytest.mark.longer
@given(random_graphs(switches=True))
def test_both_directions_are_alike(graph: LinkGraph) -> None:
    found = pairs(graph)
    assert (found.bandwidth == found.bandwidth.T).all()
    assert (found.latency == found.latency.T).all()
    assert (found.bandwidth > 0).all()


@pytest.mark.longer
@given(random_graphs(switches=True))
def test_devices_forward_where_one_is_on_a_shortest_path(graph: LinkGraph) -> None:
    hops, whole, devices = pairs(graph).hops, as_networkx(graph), set(graph.devices.tolist())
    assert hops is not None
    between = [
        set(path[1:-1]) & devices
        for one in devices
        for two in devices
        for path in (networkx.all_shortest_paths(whole, one, two) if one != two else [])
    ]
    assert forwards(graph, hops) == any(between)


def test_the_worse_direction_counts() -> None:
    """Three devices behind a switch send to x over a wide and a narrow switch; x sends to them over the wide one."""
    names = ["x", "a", "b", "c", "wide", "narrow", "hub"]
    links = [(0, 4, 9e9, 0.0), (4, 6, 9e9, 0.0), (0, 5, 1e9, 0.0), (5, 6, 1e9, 0.0)]
    links += [(device, 6, 1e9, 0.0) for device in (1, 2, 3)]
    found = pairs(link_graph(names, [True] * 4 + [False] * 3, links))
    assert found.bandwidth[0].tolist() == pytest.approx([numpy.inf, 1e9 / 1.5, 1e9 / 1.5, 1e9 / 1.5])
    assert (found.bandwidth == found.bandwidth.T).all()


def test_torus_distances_are_sums_over_dimensions() -> None:
    shape = (4, 3, 5)
    found = pairs(grid(shape, [True, False, True], 50e9, 1e-6))
    assert found.hops is not None
    for one, first in enumerate(numpy.ndindex(shape)):
        for two, second in enumerate(numpy.ndindex(shape)):
            apart = [abs(a - b) for a, b in zip(first, second, strict=True)]
            hops = min(apart[0], 4 - apart[0]) + apart[1] + min(apart[2], 5 - apart[2])
            assert found.hops[one, two] == hops
            assert found.latency[one, two] == pytest.approx(hops * 1e-6)


def test_parallel_links_are_one_as_wide_as_all() -> None:
    found = pairs(link_graph(["a", "b"], [True, True], [(0, 1, 1e9, 1e-6), (1, 0, 2e9, 3e-6)]))
    assert found.bandwidth[0, 1] == 3e9
    assert found.latency[0, 1] == 3e-6
