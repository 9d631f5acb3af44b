"""The one path of every two devices, against the definition on all shortest paths."""

from itertools import pairwise

import networkx
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.instance.pairs import Pairs
from nest.network import LinkGraph, network_model
from nest.network.graph import link_graph
from tests.network.networks import as_networkx, random_graphs


def listed_path(graph: LinkGraph, source: int, target: int) -> list[int]:
    """The path between two nodes, node by node from its end: always back over the widest way, then the first link."""
    whole = as_networkx(graph)
    place = {frozenset(ends): index for index, ends in enumerate(graph.ends.tolist())}
    hops = networkx.single_source_shortest_path_length(whole, source)

    def width(node: int) -> float:
        paths = networkx.all_shortest_paths(whole, source, node)
        return max(min([float("inf"), *(whole.edges[link]["bandwidth"] for link in pairwise(path))]) for path in paths)

    path = [target]
    while path[-1] != source:
        here = path[-1]
        nearer = [node for node in whole[here] if hops[node] == hops[here] - 1]
        path.append(
            min(
                nearer,
                key=lambda node: (
                    -min(width(node), whole.edges[node, here]["bandwidth"]),
                    place[frozenset([node, here])],
                ),
            )
        )
    return path[::-1]


@given(random_graphs(switches=True), st.randoms(use_true_random=False))
def test_paths_are_the_widest_of_the_shortest_and_then_the_first_listed(graph: LinkGraph, random: "object") -> None:
    order = list(range(len(graph.devices)))
    random.shuffle(order)  # type: ignore[attr-defined]
    found, whole = network_model(graph, numpy.array(order)), as_networkx(graph)
    ends = [pair for one, two in graph.ends.tolist() for pair in ((one, two), (two, one))]
    for one, first in enumerate(order):
        for two, second in enumerate(order):
            nodes = listed_path(graph, int(graph.devices[first]), int(graph.devices[second]))
            links = found.path(one, two).tolist()
            assert [ends[link] for link in links] == list(pairwise(nodes))
            edges = [whole.edges[link] for link in pairwise(nodes)]
            assert found.bandwidth[one, two] == min([numpy.inf, *(edge["bandwidth"] for edge in edges)])
            assert found.latency[one, two] == pytest.approx(sum(edge["latency"] for edge in edges), rel=1e-12)
            assert found.routes.hops[one, two] == len(links)
    assert found.names == tuple(graph.names[graph.devices[place]] for place in order)


@pytest.mark.longer
@given(random_graphs(switches=True))
def test_many_paths_at_once_are_those_one_by_one(graph: LinkGraph) -> None:
    found = network_model(graph)
    count = len(found.names)
    sources, targets = (each.reshape(-1) for each in numpy.indices((count, count)))
    which, links = found.routes.paths(sources, targets)
    for index, (one, two) in enumerate(zip(sources.tolist(), targets.tolist(), strict=True)):
        assert sorted(links[which == index].tolist()) == sorted(found.path(one, two).tolist())


def test_ties_go_to_the_link_listed_first() -> None:
    links = [(0, 1, 1e9, 0.0), (2, 3, 1e9, 0.0), (1, 3, 1e9, 0.0), (0, 2, 1e9, 0.0)]
    found = network_model(link_graph(list("abcd"), [True] * 4, links))
    assert found.path(0, 3).tolist() == [6, 2]  # Over c, whose link to d is listed before b's.
    assert found.path(3, 0).tolist() == [5, 1]  # Over b, whose link to a is listed before c's.


def test_a_matrix_has_a_link_for_every_ordered_pair() -> None:
    bandwidth = numpy.array([[numpy.inf, 1e9, 2e9], [1e9, numpy.inf, 3e9], [2e9, 3e9, numpy.inf]])
    latency = numpy.array([[0.0, 1e-6, 2e-6], [1e-6, 0.0, 3e-6], [2e-6, 3e-6, 0.0]])
    found = network_model(Pairs(("a", "b", "c"), bandwidth, latency), numpy.array([2, 0, 1]), slower=2.0)
    assert found.names == ("c", "a", "b")
    assert (found.bandwidth[0, 2], found.latency[0, 2]) == (1.5e9, 6e-6)
    links = {tuple(found.path(one, two).tolist()) for one in range(3) for two in range(3) if one != two}
    assert len(links) == 6
    assert found.link_bandwidth[found.path(0, 2)].tolist() == [1.5e9]
    assert found.path(1, 1).tolist() == []
    assert found.routes.paths(numpy.array([0, 1]), numpy.array([2, 1]))[1].tolist() == found.path(0, 2).tolist()


def test_links_between_switches_that_are_not_shared_do_not_limit_by_load() -> None:
    rows = [(0, 2, 50e9, 0.0), (1, 3, 50e9, 0.0), (2, 3, 10e9, 0.0)]
    graph = link_graph(list("abcd"), [True, True, False, False], rows, shared=False)
    found = network_model(graph)
    assert found.bandwidth[0, 1] == 10e9
    assert found.link_bandwidth.tolist() == [50e9, 50e9, 50e9, 50e9, numpy.inf, numpy.inf]
