"""No ring over any so many devices beats the bounds."""

from itertools import combinations
from random import Random

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nest.instance.pairs import Pairs
from nest.network import LinkGraph, PathNetwork, network_model, optimistic_level
from nest.network.graph import grid, link_graph
from tests.network.networks import random_graphs

MOST = 60


def certify(network: PathNetwork, random: Random) -> None:
    count = len(network.names)
    for size in range(2, count + 1):
        bounds = network.least_rings(size)
        assert list(bounds) == sorted(bounds)
        sets = list(combinations(range(count), size))
        for members in random.sample(sets, min(MOST, len(sets))):
            for ring in network.rings(members):
                assert any(
                    latency <= ring.latency * (1 + 1e-12) and bandwidth >= ring.bandwidth * (1 - 1e-12)
                    for latency, bandwidth in bounds
                )


@pytest.mark.longer
@settings(max_examples=40)
@given(random_graphs(switches=True), st.booleans(), st.randoms(use_true_random=False))
def test_no_ring_of_a_graph_is_better(graph: LinkGraph, all_ports: bool, random: Random) -> None:
    certify(network_model(graph, all_ports=all_ports), random)


@pytest.mark.longer
@pytest.mark.parametrize(
    "shape",
    [(3, 3), (8,), (2, 5), (2, 2, 2), *(pytest.param(each, marks=pytest.mark.slow) for each in ((2, 2, 3), (4, 3)))],
)
@pytest.mark.parametrize("wrap", [True, False])
@pytest.mark.parametrize("all_ports", [True, False])
def test_no_ring_of_a_grid_is_better(shape: tuple[int, ...], wrap: bool, all_ports: bool) -> None:
    certify(network_model(grid(shape, [wrap] * len(shape), 50e9, 1e-6), all_ports=all_ports), Random(5))


def measured(count: int, random: Random, digits: int) -> Pairs:
    bandwidth = numpy.array([[round(random.uniform(1, 9), digits) for _ in range(count)] for _ in range(count)]) * 1e9
    latency = numpy.array([[round(random.uniform(1, 9), digits) for _ in range(count)] for _ in range(count)]) * 1e-6
    bandwidth, latency = numpy.minimum(bandwidth, bandwidth.T), numpy.maximum(latency, latency.T)
    numpy.fill_diagonal(bandwidth, numpy.inf)
    numpy.fill_diagonal(latency, 0.0)
    return Pairs(tuple(map(str, range(count))), bandwidth, latency)


@pytest.mark.longer
@given(st.integers(2, 8), st.integers(0, 6), st.randoms(use_true_random=False))
def test_no_ring_of_a_matrix_is_better(count: int, digits: int, random: Random) -> None:
    certify(network_model(measured(count, random, digits)), random)


@given(st.integers(4, 8), st.randoms(use_true_random=False))
def test_few_thresholds_are_still_bounds(count: int, random: Random) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nest.network.least.MOST_BANDWIDTHS", 3)
        patch.setattr("nest.network.least.MOST_LATENCIES", 4)
        certify(network_model(measured(count, random, 6)), random)


def test_a_circuit_may_be_quick_in_one_direction_alone() -> None:
    """Between every two of three devices a quick and a slow switch, listed so that messages one way round are quick."""
    links = []
    for one in range(3):
        two, quick, slow = (one + 1) % 3, 3 + 2 * one, 4 + 2 * one
        delays = {quick: 1e-6, slow: 5e-6}
        links += [(quick, two, 1e9, delays[quick]), (slow, two, 1e9, delays[slow])]
        links += [(slow, one, 1e9, delays[slow]), (quick, one, 1e9, delays[quick])]
    network = network_model(link_graph([str(index) for index in range(9)], [index < 3 for index in range(9)], links))
    (ring,) = network.rings(range(3))
    assert ring.latency == 2e-6
    certify(network, Random(1))


@given(random_graphs(switches=True), st.booleans(), st.data())
def test_nothing_is_faster_than_the_optimistic_level(graph: LinkGraph, all_ports: bool, data: st.DataObject) -> None:
    network = network_model(graph, all_ports=all_ports)
    count = len(network.names)
    members = data.draw(st.lists(st.integers(0, count - 1), min_size=2, unique=True))
    alone, level = optimistic_level(network), optimistic_level(network, [len(members), 2])
    apart = ~numpy.eye(count, dtype=bool)
    assert (alone.fanout, alone.bandwidth, alone.latency) == (
        count,
        network.bandwidth[apart].max(),
        network.latency[apart].min(),
    )
    for ring in network.rings(members):
        assert ring.bandwidth <= level.bandwidth * (1 + 1e-12)
        assert ring.latency >= level.latency * (1 - 1e-12)
    assert level.bandwidth >= alone.bandwidth
    assert level.latency <= alone.latency


def test_the_optimistic_level_counts_ports() -> None:
    torus = network_model(grid((6, 6), [True, True], 50e9, 1e-6), all_ports=True)
    assert optimistic_level(torus).bandwidth == 50e9
    assert optimistic_level(torus, [36]).bandwidth == pytest.approx(200e9)
    assert optimistic_level(torus, [36]).latency == pytest.approx(2 * 5e-6 / 35)
