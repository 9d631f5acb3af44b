"""Dimensions are found whatever the order of nodes, and only where there are any."""

from random import Random

import networkx
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.instance.pairs import Pairs
from nest.network import LinkGraph, network_model
from nest.network.graph import grid, link_graph
from tests.network.networks import as_networkx, random_graphs, shuffled


def dimensions(graph: LinkGraph) -> list[int] | None:
    found = network_model(graph).dimensions
    return None if found is None else sorted(found.sizes)


def of_networkx(graph: "networkx.Graph[object]", random: Random, bandwidth: float = 50e9) -> LinkGraph:
    nodes = list(graph)
    random.shuffle(nodes)
    number = {node: index for index, node in enumerate(nodes)}
    links = [(number[one], number[two], bandwidth, 1e-6) for one, two in graph.edges]
    random.shuffle(links)
    return link_graph([f"d{index}" for index in range(len(nodes))], [True] * len(nodes), links)


PRIMES = {
    "path 2": (networkx.path_graph(2), 2),
    "path 3": (networkx.path_graph(3), 3),
    "path 4": (networkx.path_graph(4), 4),
    "ring 3": (networkx.cycle_graph(3), 3),
    "ring 5": (networkx.cycle_graph(5), 5),
    "ring 6": (networkx.cycle_graph(6), 6),
    "all of 4": (networkx.complete_graph(4), 4),
    "star": (networkx.star_graph(3), 4),
    "2 by 3": (networkx.complete_bipartite_graph(2, 3), 5),
    "Petersen": (networkx.petersen_graph(), 10),
}


@given(st.lists(st.sampled_from(sorted(PRIMES)), min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_prime_factors_are_found_whatever_the_order(chosen: list[str], random: Random) -> None:
    whole = networkx.Graph()
    whole.add_node(())
    for name in chosen:
        whole = networkx.cartesian_product(whole, PRIMES[name][0])
    if len(whole) <= 200:
        graph = of_networkx(whole, random)
        assert dimensions(graph) == sorted(PRIMES[name][1] for name in chosen)


@pytest.mark.longer
@given(random_graphs())
def test_what_is_found_is_a_product(graph: LinkGraph) -> None:
    found = network_model(graph).dimensions
    if found is None:
        return
    whole = as_networkx(graph)
    hops = dict(networkx.all_pairs_shortest_path_length(whole))
    assert len({tuple(row) for row in found.place.tolist()}) == len(whole) == numpy.prod(found.sizes)
    for one in whole:
        for two in whole:
            apart = [each[a, b] for each, a, b in zip(found.hops, found.place[one], found.place[two], strict=True)]
            assert sum(apart) == hops[one][two]
            if hops[one][two] == 1:
                (dimension,) = numpy.flatnonzero(apart)
                link = whole.edges[one, two]
                assert link["bandwidth"] == found.bandwidth[dimension]
                assert link["latency"] == pytest.approx(found.latency[dimension])


def test_a_link_too_few_or_a_slow_one_leaves_no_dimensions() -> None:
    graph = grid((3, 4), [False, False], 50e9, 1e-6)
    rows = list(zip(*graph.ends.T.tolist(), graph.bandwidth.tolist(), graph.latency.tolist(), strict=True))
    names = list(graph.names)
    assert dimensions(link_graph(names, [True] * 12, rows)) == [3, 4]
    assert dimensions(link_graph(names, [True] * 12, rows[1:])) == [12]  # A prime graph: one dimension.
    slow = [(*rows[0][:2], 25e9, 1e-6), *rows[1:]]
    assert dimensions(link_graph(names, [True] * 12, slow)) is None


def with_routers(graph: LinkGraph, bandwidth: float, latency: float) -> LinkGraph:
    """The same devices, each on a router of its own; routers are linked as devices were."""
    count = len(graph.names)
    rows = list(zip(*graph.ends.T.tolist(), graph.bandwidth.tolist(), graph.latency.tolist(), strict=True))
    links = [(count + one, count + two, wide, delay) for one, two, wide, delay in rows]
    links += [(count + device, device, bandwidth, latency) for device in range(count)]
    names = [*graph.names, *(f"router {name}" for name in graph.names)]
    return link_graph(names, [True] * count + [False] * count, links)


@pytest.mark.parametrize("shape", [(3, 4), (5, 5), (2, 3, 3)])
@pytest.mark.parametrize("wrap", [True, False])
def test_a_router_for_each_device_changes_nothing(shape: tuple[int, ...], wrap: bool) -> None:
    graph = grid(shape, [wrap] * len(shape), 50e9, 1e-6)
    routed = with_routers(graph, 200e9, 0.0)
    order = list(range(len(routed.names)))
    Random(3).shuffle(order)
    one, two = network_model(graph, all_ports=True), network_model(routed, all_ports=True)
    assert one.dimensions is not None
    assert two.dimensions is not None
    assert one.dimensions.sizes == two.dimensions.sizes
    assert (one.dimensions.place == two.dimensions.place).all()
    assert (one.bandwidth == two.bandwidth).all()
    assert (one.latency == two.latency).all()
    assert one.least_rings(4) == two.least_rings(4)
    random = Random(1)
    for _ in range(20):
        members = random.sample(range(len(one.names)), random.randint(2, 8))
        for first, second in zip(one.rings(members), two.rings(members), strict=True):
            assert (first.latency, first.bandwidth) == (second.latency, second.bandwidth)
    assert dimensions(shuffled(routed, order)) == sorted(one.dimensions.sizes)


def test_routers_on_slower_links_and_switches_leave_no_dimensions() -> None:
    graph = grid((3, 4), [False, False], 50e9, 1e-6)
    assert dimensions(with_routers(graph, 25e9, 0.0)) is None
    assert dimensions(with_routers(graph, 200e9, 1e-6)) is None
    star = link_graph(list("abcs"), [True] * 3 + [False], [(each, 3, 50e9, 0.0) for each in range(3)])
    assert dimensions(star) is None
    bandwidth = numpy.full((4, 4), 50e9)
    numpy.fill_diagonal(bandwidth, numpy.inf)
    assert network_model(Pairs(tuple("abcd"), bandwidth, numpy.zeros((4, 4)))).dimensions is None
