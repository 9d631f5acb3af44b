from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.errors import InputError
from nest.network import pairs
from nest.network.graph import LinkGraph
from networks_tests.field import imported, levels, reduced, told

GIB = 2.0**30
"""Bytes of what ASTRA-sim calls a GB."""


def network(kinds: list[str], sizes: list[int], bandwidth: list[Any], latency: list[Any]) -> dict[str, Any]:
    return {"topology": kinds, "npus_count": sizes, "bandwidth": bandwidth, "latency": latency}


def test_switches_are_levels_and_take_two_links() -> None:
    found = imported(network(["Switch", "Switch"], [8, 4], [400, 50.0], [936.25, 1000]))
    assert levels(found) == [(8, 400 * GIB), (4, 50 * GIB)]
    assert [level.latency for level in reduced(found)] == pytest.approx([1872.5e-9, 2e-6])
    assert "do not add up" in told(found)


def test_fully_connected_and_short_rings_take_one_link() -> None:
    found = imported(network(["FullyConnected", "Ring"], [4, 3], [100, 50], [700, 1000]))
    assert levels(found) == [(4, 100 * GIB), (3, 50 * GIB)]
    assert [level.latency for level in reduced(found)] == pytest.approx([700e-9, 1e-6])
    assert "one of its links at a time" in told(found)


KINDS = ("Ring", "Switch", "FullyConnected")


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(2, 5)), min_size=1, max_size=3))
def test_latencies_of_a_graph_are_those_of_the_shortest_ways(dimensions: list[tuple[str, int]]) -> None:
    kinds, sizes = [kind for kind, _ in dimensions], [size for _, size in dimensions]
    latency = [100.0 * (index + 1) for index in range(len(kinds))]
    found = imported(network(kinds, sizes, [10.0] * len(kinds), latency)).network
    if not isinstance(found, LinkGraph):
        assert prod(level.fanout for level in found) == prod(sizes)  # type: ignore[union-attr]
        return
    assert len(found.devices) == prod(sizes)
    points = list(product(*(range(size) for size in reversed(sizes))))
    between = pairs(found).latency
    for index, point in enumerate(points):
        steps = (_steps(kind, size, place) for (kind, size), place in zip(dimensions, reversed(point), strict=True))
        seconds = sum(count * each / 1e9 for count, each in zip(steps, latency, strict=True))
        assert between[0, index] == pytest.approx(seconds)


def _steps(kind: str, size: int, place: int) -> int:
    """Links between the first device of a row and another."""
    if not place:
        return 0
    return {"Ring": min(place, size - place), "Switch": 2, "FullyConnected": 1}[kind]


def test_the_first_version_counts_links_and_gigabytes_of_ten_to_the_nine() -> None:
    old = {
        "topology-name": "Hierarchical",
        "topologies-per-dim": ["FullyConnected", "Ring", "Switch"],
        "units-count": [4, 2, 8],
        "links-count": [3, 1, 4],
        "link-bandwidth": [25, 50, 12.5],
        "link-latency": [500, 500, 700],
    }
    assert levels(imported(old)) == [(4, 25e9), (2, 50e9), (8, 50e9)]


def test_rings_of_the_first_version_have_links_both_ways() -> None:
    ring = {"topologies-per-dim": ["Ring"], "units-count": [5], "links-count": [4]}
    found = imported({**ring, "link-bandwidth": [25], "link-latency": [500]}).network
    assert isinstance(found, LinkGraph)
    assert found.bandwidth.tolist() == [2 * 25e9] * 5


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (network(["Ring"], [8], ["tbd"], [1]), r"^bandwidth\[0\] is 'tbd'"),
        (network(["Ring"], [8], [0], [1]), r"bandwidth\[0\] must be above 0"),
        (network(["Ring"], [8], [1], [-1]), r"latency\[0\] must be at least 0"),
        (network(["Ring"], [1], [1], [1]), r"npus_count\[0\] must be a whole number of at least 2"),
        (network(["Ring"], [2.5], [1], [1]), r"npus_count\[0\] must be a whole"),  # type: ignore[list-item]
        (network(["Ring", "Switch"], [8], [1, 1], [1, 1]), "npus_count has 1 items for 2 dimensions"),
        (network(["Ring"], [8], [1e308], [1]), r"bandwidth\[0\] is 1e\+308, more than any network has"),
        (network(["Mesh"], [8], [1], [1]), r"topology\[0\] is 'Mesh'"),
        ({"topology": ["Ring"], "npus_count": [8]}, "bandwidth is missing"),
        (network([], [], [], []), "topology must not be empty"),
        (network(["Ring", "Ring"], [4096, 4096], [1, 1], [1, 1]), "16777216 devices"),
        ({"logical-dims": ["8", "2"]}, "has no links"),
    ],
)
def test_what_cannot_be_is_named(source: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        imported(source)


def test_shared_samples(shared: Path) -> None:
    folder = shared / "topologies" / "astra_sim"
    assert levels(imported(folder / "hgx_h100_16gpu.yml")) == [(8, 400 * GIB), (2, 50 * GIB)]
    ring = imported(folder / "tpu_v3_32_ring.yml").network
    assert isinstance(ring, LinkGraph)
    assert len(ring.devices) == len(ring.ends) == 32
    with pytest.raises(InputError, match="fill it in"):
        imported(folder / "dgx_v100_8gpu.yml")


def test_outer_dimensions_that_are_faster_are_told() -> None:
    assert "faster than an inner one" in told(imported(network(["Switch", "Switch"], [4, 8], [10, 500], [1, 1])))
    assert "faster than an inner one" not in told(imported(network(["Switch", "Switch"], [4, 8], [500, 10], [1, 1])))
