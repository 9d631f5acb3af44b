"""Paths and rings, links and all, against those that are worked out from the page alone."""

from random import Random

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nest.network import LinkGraph, PathNetwork, network_model
from nest.network.graph import grid, written_graph
from tests.network.networks import random_graphs
from tests.oracle.rings import Rings
from tests.oracle.topology import Topology


def agree(network: PathNetwork, written: Topology, order: list[int], random: Random) -> None:
    """Device `i` of the network is device `order[i]` of the file."""
    count, expected = len(order), Rings(written)
    for one, first in enumerate(order):
        for two, second in enumerate(order):
            assert network.path(one, two).tolist() == written.path[first][second]
            assert network.latency[one, two] == pytest.approx(written.latency[first][second], rel=1e-12)
            assert network.bandwidth[one, two] == written.bandwidth[first][second]
    assert network.link_bandwidth.tolist() == [link.capacity for link in written.links]
    for _ in range(5):
        members = random.sample(range(count), random.randint(2, min(count, 6)))
        for size in (1e3, 1e6, 1e9):
            k = len(members)
            ring = min(
                network.rings(members),
                key=lambda each: (k - 1) * each.latency + (k - 1) / k * size / each.bandwidth,
            )
            same = expected.cheapest([order[member] for member in members], size)
            assert (k - 1) * ring.latency + (k - 1) / k * size / ring.bandwidth == pytest.approx(same.phase(size))
            assert dict(zip(ring.links.tolist(), ring.shares.tolist(), strict=True)) == pytest.approx(same.shares)


def written(graph: LinkGraph) -> dict[str, object]:
    return dict(written_graph(graph))


@settings(max_examples=200)
@given(random_graphs(switches=True), st.randoms(use_true_random=False))
def test_graphs(graph: LinkGraph, random: Random) -> None:
    order = list(range(len(graph.devices)))
    random.shuffle(order)
    agree(network_model(graph, numpy.array(order)), Topology(written(graph)), order, random)


@pytest.mark.parametrize("shape", [(8,), (3, 3), (2, 4), (2, 2, 2), (6,), (2, 5), (3, 2, 2)])
@pytest.mark.parametrize("wrap", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_grids(shape: tuple[int, ...], wrap: bool, seed: int) -> None:
    random = Random(seed)
    graph = grid(shape, [wrap] * len(shape), 50e9, 1e-6)
    order = list(range(len(graph.devices)))
    random.shuffle(order)
    agree(network_model(graph, numpy.array(order)), Topology(written(graph)), order, random)
