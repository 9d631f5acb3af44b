from pathlib import Path

import networkx
import pytest

from nest.errors import InputError
from networks_tests.field import imported, read, reduced


def test_networkx_writes_what_is_read(tmp_path: Path) -> None:
    graph = networkx.Graph()
    graph.add_node("sw", kind="switch")
    for index in range(4):
        graph.add_edge(f"gpu {index}", "sw", bandwidth=50e9, latency=1e-6)
    path = tmp_path / "graph.gml"
    networkx.write_gml(graph, path)
    [level] = reduced(imported(path))
    assert (level.fanout, level.bandwidth, level.latency) == (4, 50e9, 2e-6)


def test_nodes_without_labels_go_by_their_numbers(tmp_path: Path) -> None:
    text = "graph [ node [ id 7 ] node [ id 9 ] edge [ source 7 target 9 bandwidth 5000000000.0 ] ]"
    found = reduced(read(tmp_path, text, name="graph.GML"))
    assert [(level.fanout, level.bandwidth) for level in found] == [(2, 5e9)]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("graph [ node [ id 7", "not GML"),
        ("", "not GML"),
        ('graph [ node [ id 1 label "a" ] node [ id 2 label "a" ] ]', "not GML.*duplicated"),
        (
            'graph [ node [ id 1 label "a" ] node [ id 2 label "b" ] edge [ source 1 target 2 ] ]',
            "bandwidth is missing",
        ),
    ],
)
def test_what_cannot_be_is_named(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        read(tmp_path, text, name="graph.gml")


def test_shared_samples_are_one_network(shared: Path) -> None:
    folder = shared / "topologies" / "misc"
    found = [reduced(imported(folder / f"networkx{end}")) for end in (".gml", ".graphml", "_node_link.json")]
    assert found[0] == found[1] == found[2]
