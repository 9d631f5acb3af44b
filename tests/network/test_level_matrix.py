"""Levels of pairs that form no groups."""

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.instance.pairs import Pairs
from nest.network import LinkGraph, level_matrix, pairs
from nest.network.graph import grid
from tests.network.networks import random_graphs


@given(random_graphs(switches=True), st.booleans(), st.integers(1, 4))
def test_a_level_is_as_bad_as_the_worst_of_its_pairs(graph: LinkGraph, by_hops: bool, most: int) -> None:
    network = pairs(graph)
    found = level_matrix(network, by_hops=by_hops, most=most)
    apart = ~numpy.eye(network.size, dtype=bool)
    assert (found.level == found.level.T).all()
    assert (numpy.diagonal(found.level) == -1).all()
    assert set(found.level[apart].tolist()) == set(range(len(found.bandwidth)))
    assert len(found.bandwidth) <= most
    for level, (bandwidth, latency) in enumerate(zip(found.bandwidth, found.latency, strict=True)):
        assert network.bandwidth[found.level == level].min() == bandwidth
        assert network.latency[found.level == level].max() == latency


def test_hops_are_one_two_and_remote() -> None:
    network = pairs(grid((4, 4), [True, True], 50e9, 1e-6))
    found = level_matrix(network, by_hops=True)
    assert network.hops is not None
    apart = ~numpy.eye(16, dtype=bool)
    assert (found.level[apart] == numpy.minimum(network.hops, 3)[apart] - 1).all()
    assert found.latency == (1e-6, 2e-6, 4e-6)


def test_bandwidth_is_parted_at_the_widest_gaps() -> None:
    bandwidth = numpy.array([[numpy.inf, 99, 10], [99, numpy.inf, 100], [10, 100, numpy.inf]])
    measured = Pairs(("a", "b", "c"), bandwidth, numpy.zeros((3, 3)))
    found = level_matrix(measured, by_hops=False, most=2)
    assert found.level.tolist() == [[-1, 0, 1], [0, -1, 0], [1, 0, -1]]
    assert found.bandwidth == (99, 10)
    with pytest.raises(ValueError, match="no hops"):
        level_matrix(measured, by_hops=True)
