"""`nest topology`, and problems whose network is a topology, from the command line."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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


def test_a_larger_message_makes_latency_matter_less(tmp_path: Path) -> None:
    path = written(tmp_path, "torus.json", TORUS)
    found = [
        json.loads(nest("topology", "show", path, "--json", "--message", size).stdout)["distortion"]["largest"]
        for size in ("1 kB", "1 GB")
    ]
    assert found[0] > 2 > 1.001 > found[1]
    assert nest("topology", "show", path, "--message", "3 s").returncode == 2
    assert nest("topology", "show", path, "--message", "0").returncode == 2


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
