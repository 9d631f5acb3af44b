"""From pairs to levels: hierarchies come out as they are, anything else is never promised too much."""

from itertools import pairwise
from math import prod
from random import Random

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.instance import Cluster, Level
from nest.instance.pairs import Pairs
from nest.network import LinkGraph, Reduced, pairs, reduce
from nest.network.graph import grid, link_graph
from nest.network.hierarchy import neighbour_order
from nest.network.reduction import HOPS, Reduction, Stretch
from tests.network.networks import random_graphs, shuffled, tree

FANOUTS = st.lists(st.integers(2, 4), min_size=1, max_size=4)
BANDWIDTHS = (450e9, 50e9, 12.5e9, 3e9)
LATENCIES = (2e-6, 6e-6, 10e-6, 18e-6)


def certify(found: Reduced) -> None:
    """Every reduction: levels multiply to the devices, the order names each once, no pair is promised too much."""
    for reduction in found.reductions:
        cluster = Cluster(reduction.levels, 1.0)
        assert cluster.size == found.pairs.size
        assert sorted(reduction.order.tolist()) == list(range(cluster.size))
        times, ratios = found.pairs.seconds(found.message), []
        for one in range(cluster.size):
            for two in range(one):
                first, second = reduction.order[one], reduction.order[two]
                level = reduction.levels[cluster.level(two, one)]
                assert level.bandwidth <= found.pairs.bandwidth[first, second]
                assert level.latency >= found.pairs.latency[first, second]
                ratios.append((level.latency + found.message / level.bandwidth) / times[first, second])
        assert reduction.stretch.largest == pytest.approx(max(ratios))
        assert reduction.stretch.mean == pytest.approx(sum(ratios) / len(ratios))
        assert 1.0 <= reduction.stretch.mean <= reduction.stretch.largest * (1 + 1e-12)
    assert found.best.stretch.mean == min(each.stretch.mean for each in found.reductions)


@given(FANOUTS, st.randoms(use_true_random=False))
def test_hierarchies_come_out_exactly_whatever_the_order(fanouts: list[int], random: Random) -> None:
    depth = len(fanouts)
    graph = tree(fanouts, BANDWIDTHS[:depth], LATENCIES[:depth])
    order = list(range(len(graph.names)))
    random.shuffle(order)
    for each in (graph, shuffled(graph, order)):
        found = reduce(pairs(each))
        certify(found)
        assert found.best.exact
        assert (found.best.stretch.mean, found.best.stretch.largest) == (1.0, 1.0)
        levels = found.best.levels
        assert [(level.fanout, level.bandwidth, level.latency) for level in levels] == list(
            zip(fanouts, BANDWIDTHS, LATENCIES, strict=False)
        )


@pytest.mark.longer
@given(random_graphs(switches=True, most=12))
def test_no_pair_is_promised_too_much(graph: LinkGraph) -> None:
    certify(reduce(pairs(graph)))


@pytest.mark.parametrize(
    ("shape", "fanouts"), [((4, 4, 4), (4, 4, 4)), ((17,), (17,)), ((2, 2), (2, 2)), ((73,), (73,))]
)
def test_tori(shape: tuple[int, ...], fanouts: tuple[int, ...]) -> None:
    found = reduce(pairs(grid(shape, [True] * len(shape), 50e9, 1e-6)))
    certify(found)
    assert found.best.fanouts == fanouts
    assert not found.best.exact
    assert len(found.best.levels) <= 3


def test_measured_bandwidth_is_clustered() -> None:
    random = Random(7)
    group = [index % 4 for index in range(16)]  # Machines are dealt round-robin.
    bandwidth = numpy.array([[(400e9 if a == b else 25e9) * random.uniform(0.97, 1.0) for b in group] for a in group])
    bandwidth = numpy.minimum(bandwidth, bandwidth.T)
    numpy.fill_diagonal(bandwidth, numpy.inf)
    names = tuple(f"gpu{index}" for index in range(16))
    found = reduce(Pairs(names, bandwidth, numpy.zeros((16, 16))))
    certify(found)
    assert [each.method for each in found.reductions] == ["bandwidth"]
    assert found.best.fanouts == (4, 4)
    machines = [{group[index] for index in found.best.order[first : first + 4]} for first in range(0, 16, 4)]
    assert all(len(each) == 1 for each in machines)
    assert found.best.stretch.largest < 1.05


def test_ragged_groups_keep_every_device() -> None:
    sizes = [3, 5, 2, 5]  # Machines of unequal size behind one switch.
    names, links, kinds = ["core"], [], [False]
    for machine, size in enumerate(sizes):
        names.append(f"machine {machine}")
        kinds.append(False)
        switch = len(names) - 1
        links.append((switch, 0, 10e9, 2e-6))
        for device in range(size):
            names.append(f"{machine}.{device}")
            kinds.append(True)
            links.append((len(names) - 1, switch, 100e9, 1e-6))
    found = reduce(pairs(link_graph(names, kinds, links)))
    certify(found)
    assert prod(found.best.fanouts) == sum(sizes)


@pytest.mark.longer
@given(FANOUTS, st.randoms(use_true_random=False))
def test_growing_keeps_groups_in_one_piece(fanouts: list[int], random: Random) -> None:
    cluster = Cluster(
        reduce(pairs(tree(fanouts, BANDWIDTHS[: len(fanouts)], LATENCIES[: len(fanouts)]))).best.levels, 1.0
    )
    places = list(range(cluster.size))
    random.shuffle(places)
    distance = numpy.array([[cluster.level(one, two) + 1.0 for two in places] for one in places])
    order = [places[index] for index in neighbour_order(distance)]
    for capacity in cluster.capacities:
        groups = [place // capacity for place in order]
        assert sum(one != two for one, two in pairwise(groups)) == len(set(groups)) - 1


@pytest.mark.parametrize(
    ("inner", "outer", "largest", "hierarchy"),
    [
        ((4e11, 1e-6), (5e10, 2e-6), 1.0, True),
        ((4e11, 1e-6), (4e11, 1e-6), 1.0, True),
        ((5e10, 1e-6), (4e11, 2e-6), 1.0, False),
        ((4e11, 2e-6), (5e10, 1e-6), 1.0, False),
        ((4e11, 1e-6), (5e10, 2e-6), 1.1, False),
    ],
)
def test_a_hierarchy_is_exact_and_no_level_is_faster_than_one_inside_it(
    inner: tuple[float, float], outer: tuple[float, float], largest: float, hierarchy: bool
) -> None:
    levels = (Level("node", 4, *inner), Level("rack", 2, *outer))
    assert Reduction(HOPS, levels, numpy.arange(8), Stretch(1.0, largest)).hierarchy is hierarchy


@pytest.mark.parametrize(
    ("first", "second", "taken"),
    [
        ((1.2, 1.5), (1.1, 3.0), 1),
        ((1.1, 3.0), (1.2, 1.5), 0),
        ((1.1, 3.0), (1.1, 2.0), 1),
        ((1.1, 2.0), (1.1, 2.0), 0),
    ],
)
def test_the_mean_stretch_decides_then_the_largest_then_the_order(
    first: tuple[float, float], second: tuple[float, float], taken: int
) -> None:
    levels = (Level("node", 2, 1e9, 1e-6),)
    made = tuple(Reduction(HOPS, levels, numpy.arange(2), Stretch(*each)) for each in (first, second))
    alike = numpy.full((2, 2), 1e9)
    assert Reduced(Pairs(("a", "b"), alike, numpy.zeros((2, 2))), made, 1e6).best is made[taken]
