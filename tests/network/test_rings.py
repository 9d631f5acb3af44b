"""Rings over devices, against every circuit and every order of dimensions there is."""

from collections.abc import Sequence
from itertools import pairwise, permutations, product
from math import prod
from random import Random

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.instance.pairs import Pairs
from nest.network import PathNetwork, network_model
from nest.network.graph import grid, link_graph
from tests.network.networks import random_graphs, tree

Figures = list[tuple[float, float]]


def front(figures: Figures) -> Figures:
    """Those that no other beats in latency and bandwidth."""
    return sorted(
        {
            each
            for each in figures
            if not any(other != each and other[0] <= each[0] and other[1] >= each[1] for other in figures)
        }
    )


def flat_figures(network: PathNetwork, members: Sequence[int]) -> Figures:
    """Latency and bandwidth of every circuit."""
    first, *rest = members
    found = []
    for order in permutations(rest):
        steps = list(pairwise((first, *order, first)))
        found.append((max(network.latency[s] for s in steps), min(network.bandwidth[s] for s in steps)))
    return front(found)


def agree(found: Figures, expected: Figures) -> None:
    assert len(found) == len(expected)
    for one, two in zip(found, expected, strict=True):
        assert one == pytest.approx(two, rel=1e-12)


def figures_of(network: PathNetwork, members: Sequence[int]) -> Figures:
    return [(ring.latency, ring.bandwidth) for ring in network.rings(members)]


def random_matrix(count: int, random: Random) -> Pairs:
    bandwidth = numpy.array([[random.choice([1e9, 2e9, 5e9]) for _ in range(count)] for _ in range(count)])
    latency = numpy.array([[random.choice([1e-6, 2e-6, 5e-6]) for _ in range(count)] for _ in range(count)])
    bandwidth, latency = numpy.minimum(bandwidth, bandwidth.T), numpy.maximum(latency, latency.T)
    numpy.fill_diagonal(bandwidth, numpy.inf)
    numpy.fill_diagonal(latency, 0.0)
    return Pairs(tuple(f"d{index}" for index in range(count)), bandwidth, latency)


@pytest.mark.longer
@given(st.integers(2, 7), st.randoms(use_true_random=False))
def test_circuits_of_a_matrix_are_the_best_of_all(count: int, random: Random) -> None:
    network = network_model(random_matrix(8, random))
    members = random.sample(range(8), count)
    agree(figures_of(network, members), flat_figures(network, members))


@pytest.mark.longer
@given(random_graphs(switches=True), st.data())
def test_rings_of_a_graph_are_no_worse_than_any_circuit_and_carry_what_they_say(
    graph: "object", data: st.DataObject
) -> None:
    network = network_model(graph)  # type: ignore[arg-type]
    count = len(network.names)
    members = data.draw(st.lists(st.integers(0, count - 1), min_size=2, max_size=6, unique=True))
    found = network.rings(members)
    if network.dimensions is None:
        agree(figures_of(network, members), flat_figures(network, members))
    for latency, bandwidth in flat_figures(network, members):
        assert any(each.latency <= latency and each.bandwidth >= bandwidth for each in found)
    for ring in found:
        assert (numpy.diff(ring.links) > 0).all()
        # Every member sends and receives (k-1)/k of the buffer, over one link at least.
        assert ring.shares.sum() >= (len(members) - 1) * (1 - 1e-12)


@pytest.mark.longer
@given(st.integers(10, 16), st.randoms(use_true_random=False))
def test_the_order_of_members_changes_nothing(count: int, random: Random) -> None:
    members = random.sample(range(16), count)
    other = random.sample(members, count)
    measured = random_matrix(16, random)
    for one, two in zip(network_model(measured).rings(members), network_model(measured).rings(other), strict=True):
        assert (one.latency, one.bandwidth) == (two.latency, two.bandwidth)
        assert (one.links == two.links).all()
        assert (one.shares == two.shares).all()


@pytest.mark.longer
@given(st.integers(10, 14), st.randoms(use_true_random=False))
def test_a_hidden_circuit_over_many_members_is_found(count: int, random: Random) -> None:
    """Fast links along one circuit and few besides, slow ones elsewhere."""
    around = random.sample(range(count), count)
    bandwidth = numpy.full((count, count), 1e9)
    steps = [*pairwise([*around, around[0]]), *(tuple(random.sample(range(count), 2)) for _ in range(count // 2))]
    for one, two in steps:
        bandwidth[one, two] = bandwidth[two, one] = 50e9
    numpy.fill_diagonal(bandwidth, numpy.inf)
    network = network_model(Pairs(tuple(map(str, range(count))), bandwidth, numpy.zeros((count, count))))
    assert figures_of(network, range(count)) == [(0.0, 50e9)]


def test_of_equal_circuits_the_one_with_the_fewest_hops_counts() -> None:
    """Two leaf switches: whatever the circuit it has a step between them; the best crosses once in each direction."""
    network = network_model(tree([4, 2], [50e9, 10e9], [2e-6, 6e-6]))
    (ring,) = network.rings([0, 4, 1, 5, 2, 6])
    assert ring.shares.max() == pytest.approx(5 / 6)


HOP = 1e-6
"""Latency of a link of a grid."""


def by_dimensions(network: PathNetwork, members: Sequence[int], *, all_ports: bool) -> Figures:
    """Every order of dimensions of a grid named by its coordinates, worked out from the formula."""
    points = [tuple(map(int, network.names[each].split(","))) for each in members]
    number = {name: index for index, name in enumerate(network.names)}
    values = [sorted(set(column)) for column in zip(*points, strict=True)]
    if prod(map(len, values)) != len(points):
        return []
    lines: list[tuple[int, float, float]] = []
    ways: list[int] = []
    for axis, along in enumerate(values):
        if len(along) == 1:
            continue
        worst = []
        for rest in product(*(each for other, each in enumerate(values) if other != axis)):
            line = [number[",".join(map(str, (*rest[:axis], value, *rest[axis:])))] for value in along]
            (best,) = flat_figures(network, line)
            worst.append(best)
        lines.append((len(along), max(latency for latency, _ in worst), min(bandwidth for _, bandwidth in worst)))
        ways.append(2 if len(along) > 2 and worst[0][0] == HOP else 1)  # Hop by hop, nowhere back: a ring.
    count = len(points)
    latency = sum((size - 1) * each for size, each, _ in lines) / (count - 1)

    def seconds(order: Sequence[int], both: bool) -> list[float]:
        """Per byte and dimension."""
        found, left = [0.0] * len(lines), 1.0
        for index in order:
            size, _, bandwidth = lines[index]
            found[index] = left * (size - 1) / size / (bandwidth * (ways[index] if both else 1))
            left /= size
        return found

    orders = list(permutations(range(len(lines))))
    times = [sum(seconds(order, False)) for order in orders]
    for order in orders if all_ports else []:
        parts = [seconds(order[turn:] + order[:turn], True) for turn in range(len(lines))]
        times.append(max(*map(sum, parts), *map(sum, zip(*parts, strict=True))) / len(lines))
    return [(latency, (count - 1) / count / min(times))]


SHAPES = st.sampled_from([(3, 3), (2, 5), (3, 2, 2), (6,), (5, 3), (2, 2, 2), (7, 2)])


@pytest.mark.longer
@given(SHAPES, st.lists(st.booleans(), min_size=3, max_size=3), st.booleans(), st.data())
def test_rings_of_grids_are_the_best_of_circuits_and_dimensions(
    shape: tuple[int, ...], wrap: list[bool], all_ports: bool, data: st.DataObject
) -> None:
    network = network_model(grid(shape, wrap[: len(shape)], 50e9, HOP), all_ports=all_ports)
    sides = [data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=3, unique=True)) for size in shape]
    number = {name: index for index, name in enumerate(network.names)}
    members = [number[",".join(map(str, point))] for point in product(*sides)]
    if not 2 <= len(members) <= 8:
        return
    expected = [*flat_figures(network, members), *by_dimensions(network, members, all_ports=all_ports)]
    found = figures_of(network, members)
    agree(found, [each for each in front(expected) if not _beaten_by_rounding(each, expected)])


def _beaten_by_rounding(each: tuple[float, float], others: Figures) -> bool:
    return any(
        other != each
        and other[0] <= each[0] * (1 + 1e-12)
        and other[1] >= each[1] * (1 - 1e-12)
        and (other[0] < each[0] * (1 - 1e-12) or other[1] > each[1] * (1 + 1e-12))
        for other in others
    )


def test_dimensions_of_unequal_bandwidth_go_widest_first() -> None:
    names = [f"{row},{column}" for row in range(3) for column in range(5)]
    links = [(5 * row + column, 5 * row + column + 1, 10e9, 1e-6) for row in range(3) for column in range(4)]
    links += [(5 * row + column, 5 * row + column + 5, 40e9, 2e-6) for row in range(2) for column in range(5)]
    network = network_model(link_graph(names, [True] * 15, links))
    assert network.dimensions is not None
    assert sorted(network.dimensions.bandwidth) == [10e9, 40e9]
    expected = 14 / 15 / (2 / 3 / 40e9 + 4 / 5 / 3 / 10e9)
    ring = max(network.rings(range(15)), key=lambda each: each.bandwidth)
    assert ring.bandwidth == pytest.approx(expected)
    assert ring.latency == pytest.approx((2 * 4e-6 + 4 * 2e-6) / 14)


@pytest.mark.parametrize("all_ports", [False, True])
def test_shares_are_what_the_steps_of_a_torus_send(all_ports: bool) -> None:
    network = network_model(grid((5, 5), [True, True], 50e9, 1e-6), all_ports=all_ports)
    (ring,) = network.rings(range(25))
    if all_ports:  # 4 links of a device at once, the slowest part as long as the links are busy.
        assert len(ring.links) == 100
        assert ring.shares == pytest.approx(numpy.full(100, 24 / 25 / 4))
        assert ring.bandwidth == pytest.approx(4 * 50e9)
    else:
        assert sorted(set(numpy.round(ring.shares, 12).tolist())) == pytest.approx([4 / 25, 4 / 5])
        assert ring.bandwidth == pytest.approx(50e9)


def test_up_and_down_a_line_both_directions_take_the_same_links() -> None:
    """An all-gather over four chips in a row on TPU v5e, which has no link back from the last to the first.

    jax-ml/scaling-book@04d8de5 sharding.md, "Pop Quiz 2": three hops of 8.4 MB at 45 GB/s, 560 us; measured 680 us. A
    full ring would take 34 MB at 90 GB/s, 377 us at the most.
    """
    buffer = 2048 * 8192 * 2
    line = network_model(grid((4, 8), [False, False], 45e9, 0.0), all_ports=True)
    (ring,) = line.rings([0, 8, 16, 24])
    assert 3 / 4 * buffer / ring.bandwidth == pytest.approx(560e-6, rel=0.01)
    closed = network_model(grid((16,), [True], 45e9, 0.0), all_ports=True)
    (ring,) = closed.rings(range(16))
    assert ring.bandwidth == pytest.approx(90e9)


def test_dimensions_of_different_sizes_are_as_slow_as_their_busiest_links() -> None:
    """Of 8 by 3, parts that begin along 3 go on along 8 while the others are still there."""
    network = network_model(grid((8, 3), [True, True], 50e9, 1e-6), all_ports=True)
    (ring,) = network.rings(range(24))
    assert ring.bandwidth == pytest.approx(23 / 24 / max(ring.shares / network.link_bandwidth[ring.links]))
    assert ring.bandwidth < 4 * 50e9 * 0.99


@pytest.mark.parametrize("size", [5, 16])
def test_of_the_parts_the_slowest_counts(size: int) -> None:
    """Between two there is one link, round a ring two: the part that begins between two ends last."""
    network = network_model(grid((size, 2), [True, True], 50e9, 1e-6), all_ports=True)
    ring = max(network.rings(range(2 * size)), key=lambda each: each.bandwidth)
    round_it = (size - 1) / size
    begins_between_two = (1 / 2 / 50e9 + round_it / 2 / 100e9) / 2
    busiest_links = (round_it + round_it / 2) / 2 / 100e9
    assert begins_between_two > busiest_links
    assert ring.bandwidth == pytest.approx((2 * size - 1) / (2 * size) / begins_between_two)


def test_one_device_makes_no_ring() -> None:
    network = network_model(grid((3, 3), [True, True], 50e9, 1e-6))
    with pytest.raises(ValueError, match="two devices or more"):
        network.rings([4])
    with pytest.raises(ValueError, match="2 to 9"):
        network.least_rings(10)
