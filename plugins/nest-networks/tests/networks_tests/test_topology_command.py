"""`nest topology`, and problems whose network is a topology, from the command line."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import networkx
import pytest
from ruamel.yaml import YAML

import nest as api
from nest.formulate.cluster import build_cluster
from nest.hooks.registry import registry
from nest.instance import Cluster
from nest.io import structure
from nest.spec import ClusterSpec
from tests import processes

PROFILE = {
    "layers": [f"l{index}" for index in range(6)],
    "edges": [[index, index + 1] for index in range(5)],
    "candidates": [
        {
            "name": f"tp{width}",
            "degrees": {"tp": width},
            "width": width,
            "samples": 1,
            "forward": [0.01 / width] * 6,
            "backward": [0.02 / width] * 6,
            "state": {
                "dense": {
                    "ranks": [0],
                    "weights": [1e8] * 6,
                    "gradients": [1e8] * 6,
                    "optimizer": [6e8] * 6,
                    "update": [0] * 6,
                }
            },
            "recompute": {"none": {"extra": [0] * 6, "first": [1e8] * 6, "more": [1e8] * 6, "peak": [0] * 6}},
            "edge_bytes": [1e8] * 5,
        }
        for width in (1, 2)
    ],
}
TORUS = {"torus": {"shape": [2, 4], "bandwidth": "50 GB/s", "latency": "1 us"}}


def problem(topology: Any) -> dict[str, Any]:
    return {
        "nest": 1,
        "profile": PROFILE,
        "training": {"global_batch": 16},
        "cluster": {"topology": topology, "memory": "16 GB"},
    }


def nest(*arguments: object) -> "subprocess.CompletedProcess[str]":
    return processes.run([sys.executable, "-m", "nest", *map(str, arguments)])


def written(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps(content))
    return path


def test_show_prints_levels_groups_and_distortion(tmp_path: Path) -> None:
    for name, content in (("torus.json", TORUS), ("problem.json", problem(TORUS))):
        path = written(tmp_path, name, content)
        told = nest("topology", "show", path)
        assert told.returncode == 0, told.stderr
        assert told.stdout.startswith("8 devices, reduced by hop distance")
        lines = told.stdout.splitlines()
        assert " ".join(lines[2].split()) == "level name fanout groups devices each bandwidth latency first group"
        found = json.loads(nest("topology", "show", path, "--json").stdout)
        assert (found["devices"], found["hierarchical"], found["message"]) == (8, False, 2.0**20)
        assert [each["method"] for each in found["reductions"]] == ["hop distance", "bandwidth"]
        assert found["distortion"]["mean"] == min(each["distortion"]["mean"] for each in found["reductions"])
        assert sorted(found["order"]) == sorted(f"{a},{b}" for a in range(2) for b in range(4))


def test_a_larger_message_makes_latency_matter_less(tmp_path: Path) -> None:
    path = written(tmp_path, "torus.json", TORUS)
    found = [
        json.loads(nest("topology", "show", path, "--json", "--message", size).stdout)["distortion"]["largest"]
        for size in ("1 kB", "1 GB")
    ]
    assert found[0] > 2 > 1.001 > found[1]
    assert nest("topology", "show", path, "--message", "3 s").returncode == 2
    assert nest("topology", "show", path, "--message", "0").returncode == 2


@pytest.mark.longer
@pytest.mark.parametrize(
    "topology",
    [
        TORUS,
        {"fat-tree": {"fanout": [4, 2, 3], "bandwidth": "33.3 GB/s", "latency": "0.7 us", "oversubscription": 1.7}},
        {"matrix": {"bandwidth": [[0, 3, 1, 1], [3, 0, 1.1, 1], [1, 1, 0, 3], [1, 1, 3, 0]], "latency": 1.23e-6}},
    ],
)
def test_written_levels_are_read_back(topology: dict[str, Any], tmp_path: Path) -> None:
    source = written(tmp_path, "problem.json", problem(topology))
    output = tmp_path / "cluster.yaml"
    assert nest("topology", "levels", source, "--output", output).returncode == 0
    assert nest("topology", "levels", source).stdout == output.read_text()
    cluster = YAML(typ="safe").load(output)["cluster"]
    again, _ = build_cluster(structure(cluster, ClusterSpec), registry())
    spec = structure(problem(topology)["cluster"], ClusterSpec)
    assert again == build_cluster(spec, registry())[0]
    one, two = api.solve(problem(topology)), api.solve({**problem(topology), "cluster": cluster})
    if one.placement is None:
        assert (one.status, one.batch_time, one.stages) == (two.status, two.batch_time, two.stages)
    else:  # On the network itself no two devices are slower than the levels say.
        assert one.batch_time <= two.batch_time


@pytest.mark.longer
def test_a_plan_holds_the_network_its_problem_names(tmp_path: Path) -> None:
    graph = networkx.Graph()
    for index in range(4):
        graph.add_edge(f"gpu{index}", "switch", bandwidth=50e9, latency=1e-6)
    graph.nodes["switch"]["kind"] = "switch"
    networkx.write_graphml(graph, tmp_path / "net.graphml")
    written(tmp_path, "net.json", networkx.node_link_data(graph, edges="edges"))
    plans = []
    for name in ("net.graphml", "net.json"):
        source = written(tmp_path, "problem.json", problem(name))
        output = tmp_path / f"{name}.plan.json"
        solved = nest("solve", source, "--json", "--output", output)
        assert solved.returncode == 0, solved.stderr
        plan = json.loads(output.read_text())
        assert {node["id"] for node in plan["problem"]["cluster"]["topology"]["nodes"]} == set(graph.nodes)
        plans.append((plan, output))
        (tmp_path / name).unlink()
        assert nest("check", output).returncode == 0
        assert api.solve(plan["problem"]).batch_time == plan["batch_time"]
    assert plans[0][0]["stages"] == plans[1][0]["stages"]
    hand = {"fanout": 4, "bandwidth": 50e9, "latency": 2e-6, "name": "2 hops"}
    by_hand = api.solve({**problem(None), "cluster": {"levels": [hand], "memory": "16 GB"}})
    assert by_hand.batch_time == plans[0][0]["batch_time"]


def test_levels_and_names_are_shown_too(tmp_path: Path) -> None:
    content = {**problem(TORUS), "cluster": "dgx-h100-superpod-64"}
    told = nest("topology", "show", written(tmp_path, "problem.json", content), "--json")
    found = json.loads(told.stdout)
    assert (found["hierarchical"], [level["fanout"] for level in found["levels"]]) == (True, [8, 8])


@pytest.mark.longer
@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"tours": {"shape": [4]}}, "Did you mean 'torus'"),
        ({"torus": {"shape": [4], "bandwidth": 0}}, "torus.bandwidth must be above 0"),
        ({"matrix": {"bandwidth": [[0, 1]]}}, "must be square"),
        ({"nodes": [{"id": index} for index in range(20_000)], "edges": []}, "20000 nodes"),
        ({"nodes": [{"id": "a"}, {"id": "b"}], "edges": []}, "not connected"),
        ([1, 2], "expected keys and values"),
    ],
)
def test_bad_files_are_bad_input(content: Any, told: str, tmp_path: Path) -> None:
    path = written(tmp_path, "net.json", content)
    for command in ("show", "levels"):
        answer = nest("topology", command, path)
        assert (answer.returncode, answer.stdout) == (2, "")
        assert told in answer.stderr
        assert "Traceback" not in answer.stderr
    assert "net.json" in nest("solve", written(tmp_path, "problem.json", problem("net.json"))).stderr


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    answer = nest("topology", "show", tmp_path / "none.json")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "there is no such file" in answer.stderr
    assert nest("topology", "levels", written(tmp_path, "t.json", TORUS), "-o", tmp_path / "no" / "x").returncode == 2


def test_a_hierarchy_is_the_cluster_written_by_hand() -> None:
    spec = structure(
        {
            "topology": {"fat-tree": {"fanout": [8, 4, 4], "bandwidth": "50 GB/s", "latency": "1 us"}},
            "device": "h100-sxm",
        },
        ClusterSpec,
    )
    found, _ = build_cluster(spec, registry())
    hand = {"fanout": [8, 16], "latency": [2e-6, 4e-6]}
    assert found.size == 128
    assert isinstance(found, Cluster)
    assert [level.bandwidth for level in found.levels] == [50e9] * 3
    assert [level.latency for level in found.levels][:2] == hand["latency"]
