"""Graphs in files and in place: what is read, and what is refused."""

import json
from pathlib import Path
from typing import Any

import networkx
import numpy
import pytest

from nest.errors import InputError
from nest.formulate.topology import loaded
from nest.hooks.registry import registry
from nest.network import LinkGraph, pairs, reduce
from nest.network.graph import link_graph, read_graph, written_graph

DEVICES = [{"id": "a"}, {"id": "b", "kind": "device"}, {"id": "s", "kind": "switch"}]
LINKS = [
    {"source": "a", "target": "s", "bandwidth": "50 GB/s", "latency": "1 us"},
    {"source": "b", "target": "s", "bandwidth": 10e9},
]


def described(nodes: Any = DEVICES, edges: Any = LINKS, **keys: Any) -> dict[str, Any]:
    return {"nodes": nodes, "edges": edges, **keys}


def same(one: LinkGraph, two: LinkGraph) -> bool:
    return (one.names, one.shared) == (two.names, two.shared) and all(
        numpy.array_equal(getattr(one, name), getattr(two, name))
        for name in ("devices", "ends", "bandwidth", "latency")
    )


def test_a_graph_in_place() -> None:
    found = loaded(described(), registry(), None)
    assert isinstance(found, LinkGraph)
    between = pairs(found)
    assert (between.names, between.bandwidth[0, 1], between.latency[0, 1]) == (("a", "b"), 10e9, 1e-6)
    assert same(read_graph(written_graph(found)), found)


def test_networkx_files_are_read_alike(tmp_path: Path) -> None:
    graph = networkx.Graph()
    graph.add_nodes_from(["a", "b"], kind="device")
    graph.add_node("s", kind="switch", colour="red")
    graph.add_edge("a", "s", bandwidth=50e9, latency=1e-6)
    graph.add_edge("s", "b", bandwidth=10e9, latency=2e-6, length=3)
    networkx.write_graphml(graph, tmp_path / "net.graphml")
    for edges in ("edges", "links"):
        (tmp_path / f"{edges}.json").write_text(json.dumps(networkx.node_link_data(graph, edges=edges)))
    found = [loaded(name, registry(), tmp_path) for name in ("net.graphml", "edges.json", "links.json")]
    assert all(isinstance(each, LinkGraph) for each in found)
    assert same(found[0], found[1])  # type: ignore[arg-type]
    assert same(found[1], found[2])  # type: ignore[arg-type]


def test_networks_go_to_networkx_and_back() -> None:
    for shared in (True, False):
        there = link_graph(["a", "b", "s"], [True, True, False], [(0, 2, 1e9, 1e-6), (1, 2, 2e9, 0.0)], shared=shared)
        graph = there.to_networkx()
        assert dict(graph.nodes(data="kind")) == {"a": "device", "b": "device", "s": "switch"}
        assert networkx.is_tree(graph)
        assert written_graph(LinkGraph.from_networkx(graph)) == written_graph(there)


def test_directed_graphs_count_the_worse_direction() -> None:
    there = {"source": "a", "target": "b", "bandwidth": 5e9, "latency": 1e-6}
    back = {"source": "b", "target": "a", "bandwidth": 3e9, "latency": 4e-6}
    nodes = [{"id": "a"}, {"id": "b"}]
    found = pairs(read_graph(described(nodes, [there, back], directed=True)))
    assert (found.bandwidth[0, 1], found.latency[0, 1]) == (3e9, 4e-6)
    with pytest.raises(InputError, match="from 'a' to 'b' and none back"):
        read_graph(described(nodes, [there], directed=True))


def test_a_node_may_stand_for_several_devices() -> None:
    nodes = [{"id": "m", "devices": 4}, {"id": "n", "devices": 4}]
    link = {"source": "m", "target": "s", "bandwidth": 40e9, "latency": 1e-6}
    nodes.append({"id": "s", "kind": "switch"})
    outside = described(nodes, [link, {**link, "source": "n"}])
    best = reduce(pairs(read_graph(outside))).best
    assert [(level.fanout, level.bandwidth) for level in best.levels] == [(8, 10e9)]
    inside = [{**node, "bandwidth": "300 GB/s", "latency": "3 us"} for node in nodes[:2]]
    best = reduce(pairs(read_graph(described([*inside, nodes[2]], outside["edges"])))).best
    assert best.exact
    assert [(each.fanout, each.bandwidth) for each in best.levels] == [(4, 300e9), (2, 10e9)]


def test_defaults_and_units_in_names() -> None:
    nodes = [{"id": 0, "kind": "gpu"}, {"id": 1, "kind": "host"}, {"id": 2}]
    edges = [{"source": 0, "target": 1, "bw_GBps": 4, "lat_us": 3}, {"source": 1, "target": 2}]
    found = pairs(read_graph(described(nodes, edges, graph={"bandwidth": "2 GB/s", "latency": "5 us", "name": "x"})))
    assert found.bandwidth[0].tolist() == [numpy.inf, 4e9, 2e9]
    assert found.latency[0].tolist() == [0, 3e-6, 8e-6]


def test_shared_samples_are_read(shared: Path) -> None:
    found = [
        loaded(f"networkx{end}", registry(), shared / "topologies" / "misc") for end in ("_node_link.json", ".graphml")
    ]
    assert isinstance(found[0], LinkGraph)
    assert same(found[0], found[1])  # type: ignore[arg-type]
    best = reduce(pairs(found[0])).best
    assert best.exact
    assert [(each.fanout, each.bandwidth) for each in best.levels] == [(16, 50e9), (2, 50e9)]


def edge(**changes: Any) -> list[dict[str, Any]]:
    return [{**LINKS[0], **changes}, LINKS[1]]


@pytest.mark.longer
@pytest.mark.parametrize(
    ("graph", "told"),
    [
        (described(edges=LINKS[:1]), r"not connected: no links lead from 'a' to 'b'"),
        (described([*DEVICES, {"id": "t", "kind": "switch"}]), "not connected.*'t'"),
        (described(edges=edge(bandwidth=0)), r"topology\.edges\[0\]\.bandwidth must be above 0, is 0"),
        (described(edges=edge(bandwidth=-5)), r"edges\[0\]\.bandwidth must be above 0, is -5"),
        (described(edges=edge(bandwidth=float("nan"))), "finite"),
        (described(edges=edge(bandwidth="50 GB")), "unit"),
        (described(edges=edge(latency=-1)), r"edges\[0\]\.latency must be at least 0"),
        (described(edges=edge(bandwidth=None)), r"edges\[0\]\.bandwidth is missing"),
        (described(edges=[{"source": "a", "target": "s", "bandwith": 3}]), "bandwidth is missing.*'bandwith'"),
        (described(edges=edge(target="a")), r"edges\[0\] links 'a' to itself"),
        (described(edges=edge(target="q")), r"edges\[0\] names 'q', which is not among the nodes"),
        (described([*DEVICES, {"id": "a"}]), "several are called 'a'"),
        (described([{"id": 1}, {"id": "1"}]), "several are called '1'"),
        (described([{"id": "a", "kind": "switch"}, DEVICES[2], {"id": "b", "kind": "switch"}]), "no devices"),
        (described([DEVICES[0], {"id": "b", "kind": "switch"}, DEVICES[2]]), "one device"),
        (described([{"id": "a", "kind": "toaster"}]), r"nodes\[0\]\.kind must be one of device"),
        (described([{"kind": "device"}]), r"nodes\[0\]\.id is missing"),
        (described([]), "nodes must not be empty"),
        (described(5), "nodes must hold keys and values"),
        (described(links=LINKS), "two names for the same"),
        (described([{"id": index} for index in range(100_000)], []), "100000 nodes"),
        (described([{"id": index} for index in range(5_000)], []), "5000 devices"),
        (described([{"id": "a", "devices": 10**9}]), "1000000000 devices"),
        (described(colour="red"), "colour is not a known key"),
        ({"tours": {"shape": [4]}}, "described by tours. Did you mean 'torus'"),
        ({}, "described by nothing"),
    ],
)
def test_bad_graphs_are_named(graph: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=rf"cluster\.topology.*{told}" if "topology" not in told else told) as error:
        loaded(graph, registry(), None)
    assert len(str(error.value)) < 400


@pytest.mark.longer
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("<graphml", "not GraphML"),
        ("", "not GraphML"),
        ("<a/>", "not GraphML"),
        ('<!DOCTYPE x [<!ENTITY a "b">]><graphml/>', "entities"),
        ("<graphml>" + "<node/>" * 100_000, "100000 nodes"),
    ],
)
def test_bad_graphml_is_named(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "net.graphml").write_text(text)
    with pytest.raises(InputError, match=f"net.graphml: .*{told}"):
        loaded("net.graphml", registry(), tmp_path)


def test_errors_of_files_name_their_line(tmp_path: Path) -> None:
    (tmp_path / "net.json").write_text(json.dumps(described(edges=edge(bandwidth=0)), indent=1))
    with pytest.raises(InputError, match=r"net\.json:\d+: edges\[0\]\.bandwidth must be above 0"):
        loaded("net.json", registry(), tmp_path)


def test_a_link_listed_from_both_ends_is_one_or_two_links_as_the_file_says() -> None:
    both = [{"source": one, "target": two, "bandwidth": 50e9} for one, two in (("a", "b"), ("b", "a"))]
    graph = {"nodes": [{"id": name, "kind": "device"} for name in "ab"], "edges": both}
    with pytest.raises(InputError, match=r"edges\[1\] is edges\[0\] the other way round; write `directed: true`"):
        read_graph(graph)
    assert pairs(read_graph({**graph, "directed": True})).bandwidth[0, 1] == 50e9
    assert pairs(read_graph({**graph, "multigraph": True})).bandwidth[0, 1] == 100e9
