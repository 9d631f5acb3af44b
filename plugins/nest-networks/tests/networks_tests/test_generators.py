"""Well-known networks by their parameters, against what their papers say of them."""

from collections import Counter
from typing import Any

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.errors import InputError
from nest.formulate.topology import loaded
from nest.hooks.registry import registry
from nest.instance.pairs import Pairs
from nest.io import structure
from nest.network import LinkGraph, pairs, reduce
from nest.spec import ClusterSpec
from tests.network.networks import as_networkx


def network(**source: Any) -> LinkGraph:
    ((name, parameters),) = source.items()
    written = {name.replace("_", "-"): {"bandwidth": "50 GB/s", "latency": "1 us", **parameters}}
    found = read(written)
    assert isinstance(found, LinkGraph)
    return found


def read(written: dict[str, Any]) -> Any:
    spec = structure({"topology": written}, ClusterSpec)
    assert spec.topology is not None
    return loaded(spec.topology, registry(), None)


def degrees(graph: LinkGraph) -> Counter[int]:
    return Counter(degree for _, degree in as_networkx(graph).degree())


@given(st.lists(st.integers(1, 5), min_size=1, max_size=3).filter(lambda shape: max(shape) > 1))
def test_torus_and_mesh_are_products_of_rings_and_paths(shape: list[int]) -> None:
    for found, periodic in ((network(torus={"shape": shape}), True), (network(mesh={"shape": shape}), False)):
        expected = networkx.grid_graph(list(reversed(shape)), periodic=periodic)
        expected.remove_edges_from(list(networkx.selfloop_edges(expected)))
        whole = as_networkx(found)
        names = {index: tuple(map(int, name.split(","))) for index, name in enumerate(found.names)}
        if len(shape) == 1:
            names = {index: place[0] for index, place in names.items()}  # type: ignore[misc]
        assert networkx.utils.graphs_equal(
            networkx.Graph(networkx.relabel_nodes(whole, names).edges()), networkx.Graph(expected.edges())
        )


def test_tpu_v4_has_six_links_a_chip() -> None:
    assert degrees(network(torus={"shape": [4, 4, 4]})) == {6: 64}
    assert degrees(network(torus={"shape": [4, 4, 4], "wrap": [True, True, False]})) == {6: 32, 5: 32}


def test_small_dragonflies_have_several_links_between_groups() -> None:
    found = network(dragonfly={"p": 1, "a": 4, "h": 2, "groups": 5, "global_bandwidth": "10 GB/s"})
    between = Counter(
        frozenset(found.names[node].split()[1].split(".")[0] for node in link)
        for link, bandwidth in zip(found.ends.tolist(), found.bandwidth.tolist(), strict=True)
        if bandwidth == 10e9
    )
    assert len(between) == 10
    assert set(between.values()) == {2}


@pytest.mark.parametrize("k", [2, 4, 6, 8])
def test_fat_trees_have_the_size_of_the_paper_and_full_bandwidth(k: int) -> None:
    """k pods, (k/2)^2 core switches, k^3/4 hosts, all switches of k ports, rearrangeably non-blocking."""
    found = network(fat_tree={"k": k})
    assert len(found.devices) == k**3 // 4
    assert degrees(found) == Counter({1: k**3 // 4}) + Counter({k: k * k + (k // 2) ** 2})
    best = reduce(pairs(found)).best
    assert best.exact
    assert {level.bandwidth for level in best.levels} == {50e9}


@pytest.mark.parametrize("ratio", [1, 2, 4.0, [2, 3]])
def test_both_ways_to_write_a_fat_tree_agree(ratio: Any) -> None:
    one = reduce(pairs(network(fat_tree={"k": 4, "oversubscription": ratio}))).best
    two = reduce(pairs(network(fat_tree={"fanout": [2, 2, 4], "oversubscription": ratio}))).best
    assert one.levels == two.levels


def test_oversubscription_divides_what_devices_get() -> None:
    best = reduce(pairs(network(fat_tree={"fanout": [8, 4, 4], "oversubscription": [2, 2]}))).best
    assert best.exact
    assert [(level.fanout, level.bandwidth) for level in best.levels] == [(8, 50e9), (4, 25e9), (4, 12.5e9)]
    assert [level.latency for level in best.levels] == [2e-6, 4e-6, 6e-6]


def test_rails_meet_at_their_leaf() -> None:
    parameters = {"nodes": 4, "gpus": 8, "nvlink_bandwidth": "450 GB/s", "nvlink_latency": "3 us"}
    found = pairs(network(rail_optimised={**parameters, "oversubscription": 2}))
    assert found.hops is not None
    place = {name: index for index, name in enumerate(found.names)}

    def between(one: str, two: str) -> tuple[float, float, int]:
        assert found.hops is not None
        row, column = place[one], place[two]
        return found.bandwidth[row, column], found.latency[row, column], found.hops[row, column]

    assert between("0.0", "0.7") == (450e9, 3e-6, 2)
    assert between("0.3", "2.3") == (50e9, 2e-6, 2)
    assert between("0.3", "2.4")[2] == 4
    assert between("0.3", "2.4")[0] <= 50e9
    steep = network(rail_optimised={**parameters, "oversubscription": 2})
    above = (steep.ends == steep.names.index("spine")).any(axis=1)
    assert set(steep.bandwidth[above]) == {4 * 50e9 / 2}
    alone = network(rail_optimised={**parameters, "spine": False})
    assert "spine" not in alone.names
    assert reduce(pairs(alone)).best.fanouts == (8, 4)


def test_measured_matrices_take_the_worse_direction() -> None:
    found = read({"matrix": {"bandwidth": [[None, "10 GB/s"], [8e9, 0]], "latency": [[0, 1e-6], ["3 us", 0]]}})
    assert isinstance(found, Pairs)
    assert (found.bandwidth[0, 1], found.latency[1, 0], found.names) == (8e9, 3e-6, ("0", "1"))


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ({"torus": {"shape": []}}, r"topology\.torus\.shape must not be empty"),
        ({"torus": {"shape": [0, 4]}}, r"torus\.shape\[0\] must be at least 1"),
        ({"torus": {"shape": [4, 4], "wrap": [True, True, True]}}, r"torus\.wrap has 3 items"),
        ({"torus": {"shape": [1]}}, "one device"),
        ({"torus": {"shape": [100, 1000]}}, "100000 devices"),
        ({"torus": {"shape": [4], "bandwidth": 0}}, r"torus\.bandwidth must be above 0"),
        ({"torus": {"shape": [4], "wrpa": True}}, "wrpa is not a known key.*wrap"),
        ({"dragonfly": {"p": 2, "a": 4, "h": 2, "groups": 10}}, "reach 8 other groups"),
        ({"dragonfly": {"p": 200, "a": 400, "h": 200}}, "devices"),
        ({"fat-tree": {}}, "give one of them"),
        ({"fat-tree": {"k": 5}}, "even"),
        ({"fat-tree": {"k": 48}}, "27648 devices"),
        ({"fat-tree": {"fanout": [4, 4], "oversubscription": [2, 2]}}, "below the top there are 1"),
        ({"fat-tree": {"fanout": [4, 4], "oversubscription": 0.5}}, "at least 1"),
        ({"rail-optimised": {"nodes": 4, "gpus": 2, "nvlink_bandwidth": 1e9, "unit": 3}}, "does not divide"),
    ],
)
def test_what_cannot_be_is_named(source: dict[str, Any], told: str) -> None:
    ((name, parameters),) = source.items()
    written = {name: {"bandwidth": 1e9, **parameters}}
    with pytest.raises(InputError, match=told):
        read(written)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ({"bandwidth": [[0, 1], [1]]}, r"matrix\.bandwidth\[1\] has 1 items, the matrix has 2 rows; it must be square"),
        ({"bandwidth": [[0, 1, 2], [1, 0, 2]]}, "must be square"),
        ({"bandwidth": [[0, 1], [1, 0]], "latency": [[0, 0]]}, "latency has 1 rows for 2 devices"),
        ({"bandwidth": [[0, 1], [1, 0]], "latency": -1}, "latency must be at least 0"),
        ({"bandwidth": [[0, 0], [1, 0]]}, r"matrix\.bandwidth\[0\]\[1\] is 0"),
        ({"bandwidth": [[0, 1], [-1, 0]]}, r"matrix\.bandwidth\[1\]\[0\] is -1"),
        ({"bandwidth": [[0, None], [1, 0]]}, r"matrix\.bandwidth\[0\]\[1\] is missing"),
        ({"bandwidth": [[0, 1], [1, 0]], "latency": [[0, -1], [1, 0]]}, r"matrix\.latency\[0\]\[1\] is -1"),
        ({"bandwidth": [[0, float("nan")], [1, 0]]}, "finite"),
        ({"bandwidth": [[0, 1], [1, 0]], "names": ["a"]}, "names has 1 items for 2"),
        ({"bandwidth": [[0, 1], [1, 0]], "names": ["a", "a"]}, "several devices called 'a'"),
        ({"bandwidth": [[0]]}, "one device"),
    ],
)
def test_bad_matrices_are_named(source: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        read({"matrix": source})
