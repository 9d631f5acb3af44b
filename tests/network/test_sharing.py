"""What devices get of links that they share."""

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nest.instance import Cluster
from nest.network import LinkGraph, pairs, reduce
from nest.network.graph import grid, link_graph
from nest.network.paths import loads
from tests.network.networks import all_sending, as_networkx, random_graphs, tree


def leaf_and_spine(leaves: int, below: int, spines: int, uplink: float, *, shared: bool = True) -> "object":
    count = leaves * below
    names = [f"d{index}" for index in range(count)]
    names += [f"leaf {index}" for index in range(leaves)] + [f"spine {index}" for index in range(spines)]
    links = [(device, count + device // below, 50e9, 1e-6) for device in range(count)]
    links += [(count + leaf, count + leaves + spine, uplink, 1e-6) for leaf in range(leaves) for spine in range(spines)]
    return link_graph(names, [index < count for index in range(len(names))], links, shared=shared)


@given(st.integers(2, 4), st.integers(1, 8), st.integers(1, 4))
def test_devices_of_a_leaf_share_its_ways_up(leaves: int, below: int, spines: int) -> None:
    found = pairs(leaf_and_spine(leaves, below, spines, 10e9))  # type: ignore[arg-type]
    assert found.bandwidth[0, -1] == pytest.approx(min(10e9, 10e9 * spines / below))
    if below > 1:
        assert found.bandwidth[0, 1] == 50e9


def test_a_link_carries_no_more_than_it_has() -> None:
    found = pairs(leaf_and_spine(2, 2, 8, 10e9))  # type: ignore[arg-type]
    assert found.bandwidth[0, -1] == 10e9  # Eight ways of 10 GB/s for two devices: each path is still one link wide.


def test_links_may_have_the_bandwidth_of_a_device() -> None:
    found = pairs(leaf_and_spine(2, 8, 1, 10e9, shared=False))  # type: ignore[arg-type]
    assert found.bandwidth[0, -1] == 10e9


def test_a_tree_carries_upwards_what_is_below() -> None:
    graph = tree([4, 2], [50e9, 10e9], [2e-6, 6e-6])
    found = loads(graph)
    assert len(found) == 4
    assert not found[0].any()
    assert not found[2].any()
    for far, below in ((2, 0.0), (4, 4.0)):
        carried = found[far - 1]
        assert [load for load, trunk in zip(carried, graph.trunks, strict=True) if not trunk] == [1.0] * 8
        assert [load for load, trunk in zip(carried, graph.trunks, strict=True) if trunk] == [below] * 2


def test_devices_that_pass_on_share_their_links() -> None:
    """In a ring of eight, four hops away, a device sends to one other: over four of its eight links each way round."""
    graph = grid((8,), [True], 50e9, 1e-6)
    assert [each.tolist() for each in loads(graph)] == [[far / 2] * 8 for far in (1, 2, 3)] + [[2.0] * 8]
    assert pairs(graph).bandwidth[0].tolist() == pytest.approx(
        [float("inf"), 50e9, 50e9, 50e9 / 1.5, 25e9, 50e9 / 1.5, 50e9, 50e9]
    )


@pytest.mark.longer
@settings(max_examples=200)
@given(random_graphs(switches=True))
def test_no_level_is_faster_than_what_devices_get_when_all_send_that_far(graph: LinkGraph) -> None:
    no_level_is_faster(graph)


@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (9,), (2, 3, 3), (6, 2)])
@pytest.mark.parametrize("wrap", [True, False])
def test_no_level_of_a_grid_is_faster(shape: tuple[int, ...], wrap: bool) -> None:
    no_level_is_faster(grid(shape, [wrap] * len(shape), 50e9, 1e-6))


def no_level_is_faster(graph: LinkGraph) -> None:
    """Every device sends evenly to all at one distance: each gets the rate at which its fullest link is full."""
    totals, each_sends = all_sending(graph)
    whole = as_networkx(graph)
    found = reduce(pairs(graph))
    for reduction in found.reductions:
        cluster = Cluster(reduction.levels, 1.0)
        for one in range(cluster.size):
            for two in range(cluster.size):
                if one != two:
                    pair = int(graph.devices[reduction.order[one]]), int(graph.devices[reduction.order[two]])
                    sent = totals[networkx.shortest_path_length(whole, *pair)]
                    rate = min(whole.edges[way]["bandwidth"] / sent[way] for way in each_sends[pair])
                    level = reduction.levels[cluster.level(*sorted((one, two)))]
                    assert level.bandwidth <= rate * (1 + 1e-8)


def test_far_traffic_does_not_slow_near_devices() -> None:
    """Routers in a row, the outer with three devices each: what passes the middle is not what neighbours send."""
    names = ["a", "b", "c", "d", "e", "f", "g", "h", "left", "middle", "right"]
    ends = [(0, 8), (1, 8), (2, 8), (3, 9), (4, 9), (5, 10), (6, 10), (7, 10), (8, 9), (9, 10)]
    links = [(one, two, 30e9, 1e-6) for one, two in ends]
    found = pairs(link_graph(names, [index < 8 for index in range(11)], links))
    assert found.bandwidth[0, 5] == 10e9  # Three devices send to three beyond the middle.
    assert found.bandwidth[0, 3] == 10e9  # All of the left to the two of the middle ...
    assert found.bandwidth[3, 4] == 30e9
