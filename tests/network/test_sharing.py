"""What devices get of links between switches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.network import pairs
from nest.network.graph import link_graph
from nest.network.paths import loads
from tests.network.networks import tree


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


def test_links_of_devices_are_their_own() -> None:
    graph = tree([4, 2], [50e9, 10e9], [2e-6, 6e-6])
    found = loads(graph)
    assert sorted(found) == [2, 4]
    assert not found[2].any()
    assert [load for load, trunk in zip(found[4], graph.trunks, strict=True) if not trunk] == [0.0] * 8
    assert [load for load, trunk in zip(found[4], graph.trunks, strict=True) if trunk] == [4.0, 4.0]


def test_far_traffic_does_not_slow_near_devices() -> None:
    """Routers in a row, the outer with three devices each: what passes the middle is not what neighbours send."""
    names = ["a", "b", "c", "d", "e", "f", "g", "h", "left", "middle", "right"]
    ends = [(0, 8), (1, 8), (2, 8), (3, 9), (4, 9), (5, 10), (6, 10), (7, 10), (8, 9), (9, 10)]
    links = [(one, two, 30e9, 1e-6) for one, two in ends]
    found = pairs(link_graph(names, [index < 8 for index in range(11)], links))
    assert found.bandwidth[0, 5] == 10e9  # Three devices send to three beyond the middle.
    assert found.bandwidth[0, 3] == 10e9  # All of the left to the two of the middle ...
    assert found.bandwidth[3, 4] == 30e9
