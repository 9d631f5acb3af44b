"""Paths of the fewest hops, the widest of them, against every path there is."""

from itertools import pairwise

import networkx
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.network import LinkGraph, pairs
from nest.network.graph import grid, link_graph
from tests.network.networks import as_networkx, random_graphs, shuffled


@given(random_graphs())
def test_bandwidth_and_hops_are_those_of_the_widest_shortest_path(graph: LinkGraph) -> None:
    found, whole = pairs(graph), as_networkx(graph)
    assert found.hops is not None
    for one in range(found.size):
        for two in range(found.size):
            if one == two:
                assert (found.bandwidth[one, two], found.latency[one, two]) == (numpy.inf, 0.0)
                continue
            paths = [list(pairwise(path)) for path in networkx.all_shortest_paths(whole, one, two)]
            widths = [min(whole.edges[link]["bandwidth"] for link in path) for path in paths]
            delays = [sum(whole.edges[link]["latency"] for link in path) for path in paths]
            widest = [delay for delay, width in zip(delays, widths, strict=True) if width == max(widths)]
            assert found.hops[one, two] == len(paths[0])
            assert found.bandwidth[one, two] == max(widths)
            assert min(widest) - 1e-15 <= found.latency[one, two] <= max(widest) + 1e-15


@given(random_graphs(switches=True))
def test_both_directions_are_alike(graph: LinkGraph) -> None:
    found = pairs(graph)
    assert (found.bandwidth == found.bandwidth.T).all()
    assert (found.latency == found.latency.T).all()
    assert (found.bandwidth > 0).all()


@given(random_graphs(switches=True), st.randoms(use_true_random=False))
def test_another_order_of_nodes_changes_nothing(graph: LinkGraph, random: "object") -> None:
    order = list(range(len(graph.names)))
    random.shuffle(order)  # type: ignore[attr-defined]
    one, two = pairs(graph), pairs(shuffled(graph, order))
    back = numpy.array([two.names.index(name) for name in one.names])
    again = two.reordered(back)
    assert again.names == one.names
    assert again.bandwidth == pytest.approx(one.bandwidth, rel=1e-12)
    assert again.latency == pytest.approx(one.latency, abs=1e-14)


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


def test_many_devices_are_walked_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = grid((3, 3), [True, True], 50e9, 1e-6)
    whole = pairs(graph)
    monkeypatch.setattr("nest.network.paths.STEPS_AT_ONCE", 80)
    parts = pairs(graph)
    assert (whole.bandwidth == parts.bandwidth).all()
    assert (whole.latency == parts.latency).all()


def test_parallel_links_are_one_as_wide_as_all() -> None:
    found = pairs(link_graph(["a", "b"], [True, True], [(0, 1, 1e9, 1e-6), (1, 0, 2e9, 3e-6)]))
    assert found.bandwidth[0, 1] == 3e9
    assert found.latency[0, 1] == 3e-6
