"""Topologies of plug-ins and of files: what a problem holds in their place, and what the schema says of them."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy
import pytest

from nest.cli.schema import text
from nest.errors import InputError
from nest.formulate.cluster import build_cluster
from nest.formulate.topology import in_place
from nest.hooks import hook
from nest.hooks.registry import registry
from nest.instance import Cluster, Level
from nest.instance.pairs import Pairs
from nest.io import structure
from nest.network import LinkGraph
from nest.network.graph import link_graph
from nest.spec import ClusterSpec
from nest.spec.topology import Topology

PAIRS = Pairs(("a", "b"), numpy.array([[numpy.inf, 3e9], [3e9, numpy.inf]]), numpy.array([[0, 1e-6], [1e-6, 0]]))
GRAPH = link_graph(["a", "b", "s"], [True, True, False], [(0, 2, 3e9, 1e-6), (1, 2, 3e9, 0.0)])
LEVELS = Cluster((Level("pair", 2, 3e9, 1e-6),), 7.0)


def plugin(answer: Cluster | LinkGraph | Pairs) -> Any:
    class Importer:
        name = "own"

        def accepts(self, source: Any) -> bool:
            return isinstance(source, Path) and source.suffix == ".own"

        def load(self, source: Path) -> Cluster | LinkGraph | Pairs:
            return answer

    class Plugin:
        @hook
        def nest_topology_importers(self) -> list[Any]:
            return [Importer()]

    return Plugin()


@pytest.mark.parametrize("answer", [PAIRS, GRAPH, LEVELS])
def test_what_a_plug_in_reads_is_held_in_place(answer: Any, tmp_path: Path) -> None:
    (tmp_path / "net.own").write_text("")
    known = registry(extra=[plugin(answer)])
    spec = ClusterSpec(topology="net.own", memory=None if answer is LEVELS else 7.0)  # type: ignore[arg-type]
    direct, _ = build_cluster(spec, known, tmp_path)
    held = in_place(spec, known, tmp_path)
    again, _ = build_cluster(held, registry(), None)
    assert [(each.fanout, each.bandwidth, each.latency) for each in again.levels] == [(2, 3e9, 1e-6)]
    assert (again.levels, again.memory) == (direct.levels, direct.memory)


SCHEMA = jsonschema.Draft202012Validator(json.loads(text("topology")))
LINKED = {
    "nodes": [{"id": "a"}, {"id": 2, "kind": "gpu", "gpus": 3}],
    "edges": [{"source": "a", "target": 2, "bandwidth": 1}],
}


@pytest.mark.parametrize(
    ("content", "allowed"),
    [
        ({"torus": {"shape": [4, 4], "bandwidth": "50 GB/s", "wrap": [True, False]}}, True),
        ({"torus": {"shape": 4, "bandwidth": 1e9, "wrap": False}}, True),
        ({"torus": {"shape": [4, 4]}}, False),
        ({"torus": {"shape": [4, 4], "bandwidth": "50 GB"}}, False),
        ({"torus": {"shape": [4], "bandwidth": 1}, "mesh": {"shape": [4], "bandwidth": 1}}, False),
        ({"mesh": {"shape": [4], "bandwidth": 1, "wrap": True}}, False),
        ({"dragonfly": {"p": 2, "a": 4, "h": 2, "bandwidth": 1, "global_latency": "1 us"}}, True),
        ({"dragonfly": {"p": 0, "a": 4, "h": 2, "bandwidth": 1}}, False),
        ({"rail-optimised": {"nodes": 4, "gpus": 8, "nvlink_bandwidth": 1, "bandwidth": 1, "spine": False}}, True),
        ({"fat-tree": {"k": 4, "bandwidth": 1, "oversubscription": 2}}, True),
        ({"fat-tree": {"k": 4, "bandwidth": 1, "oversubscription": 0.5}}, False),
        ({"matrix": {"bandwidth": [[None, "1 GB/s"], [2, 0]], "latency": 1}}, True),
        ({"matrix": {"bandwidth": [[0, 1], [1, 0]], "latency": [["1 us", 0], [0, 0]]}}, True),
        ({"matrix": {"bandwidth": []}}, False),
        (LINKED, True),
        ({**LINKED, "graph": {"shared": False, "made_by": "hand"}, "directed": False, "multigraph": True}, True),
        ({**LINKED, "nodes": [{"id": "a", "kind": "toaster"}]}, False),
        ({**LINKED, "edges": [{"source": "a"}]}, False),
        ({**LINKED, "colour": 1}, False),
    ],
)
def test_schema_and_reader_agree(content: dict[str, Any], allowed: bool) -> None:
    assert SCHEMA.is_valid(content) is allowed
    if allowed:
        structure(content, Topology)  # type: ignore[arg-type]
    else:
        with pytest.raises(InputError):
            structure(content, Topology)  # type: ignore[arg-type]
