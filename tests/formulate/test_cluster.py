"""From the `cluster` section to numbers."""

import json
from pathlib import Path
from typing import Any

import pytest

from nest.catalogue import devices, links
from nest.errors import InputError
from nest.formulate.cluster import build_cluster
from nest.hooks.registry import registry
from nest.instance import Cluster, Level
from nest.io import unstructure
from nest.spec import ClusterSpec, DeviceSpec, LevelSpec, MatrixPeaks
from nest_calibrate.entries import device_text

LEVELS = (LevelSpec(fanout=4, bandwidth=1e9),)  # type: ignore[arg-type]
OWN = DeviceSpec("own", memory=5.0, memory_bandwidth=1.0, peak=MatrixPeaks(bf16=1.0))  # type: ignore[arg-type]


def built(**keys: Any) -> tuple[Cluster, DeviceSpec | None]:
    return build_cluster(ClusterSpec(**keys), registry())


def test_memory_is_as_written_or_the_devices() -> None:
    assert built(levels=LEVELS, memory=7.0)[0].memory == 7.0
    assert built(levels=LEVELS, device="h100-sxm")[0].memory == 81559 * 2**20
    assert built(levels=LEVELS, device="h100-sxm", memory=7.0, reserve=3.0)[0].memory == 7.0
    assert built(levels=LEVELS, device="h100-sxm", memory=7.0, reserve=3.0)[0].reserve == 3.0
    assert built(levels=LEVELS, device=OWN) == (Cluster((Level("level 0", 4, 1e9, 0.0),), 5.0), OWN)


def test_a_device_is_needed_with_a_model_only() -> None:
    assert built(levels=LEVELS, memory=7.0)[1] is None


def test_a_named_cluster_brings_device_memory_and_network() -> None:
    cluster, device = built(name="dgx-h100-superpod-128")
    assert device == devices()["h100-sxm"]
    assert cluster.size == 128
    assert cluster.levels[0].bandwidth == pytest.approx(450e9 * links()["nvlink4"].efficiency)
    paper, device = built(name="nest-h100-spine-leaf-64")
    assert (paper.memory, paper.levels[1].bandwidth, device) == (90 * 2**30, 12.5e9, devices()["h100-sxm"])
    assert built(name="nest-h100-spine-leaf-64", device="h200-sxm")[0].memory == 143771 * 2**20
    assert built(name="nest-h100-spine-leaf-64", memory=1e9)[0].memory == 1e9


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({}, "levels.*topology.*name"),
        ({"levels": LEVELS, "name": "dgx-h100-superpod"}, "give one network"),
        ({"levels": LEVELS}, "cluster.device is missing"),
        ({"levels": LEVELS, "device": "h100"}, r"cluster.device: .*'h100-sxm'"),
        ({"levels": LEVELS, "memory": 7.0, "reserve": 7.0}, "cluster.reserve is 7 B"),
        ({"levels": LEVELS, "device": "h100-sxm", "reserve": 90e9}, "cluster.reserve"),
        ({"name": "dgx-h100-superpod-12"}, "cannot have 12 devices"),
        ({"levels": (LevelSpec(fanout=2, link="nvlink"),), "memory": 7.0}, r"cluster.levels\[0\].bandwidth"),
        ({"levels": (LevelSpec(fanout=10**9, bandwidth=1e9),), "memory": 7.0}, "1000000000 devices"),  # type: ignore[arg-type]
        (
            {"levels": LEVELS, "device": DeviceSpec("own", 5.0, 1.0, MatrixPeaks(), {"matmul": 1.5})},  # type: ignore[arg-type]
            r"cluster.device.efficiency.matmul is 1.5",
        ),
    ],
)
def test_what_cannot_be_is_named(keys: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        built(**keys)


def test_a_device_may_be_a_file_beside_the_problem(tmp_path: Path) -> None:
    (tmp_path / "machines").mkdir()
    (tmp_path / "machines" / "own.toml").write_text(device_text(OWN))
    (tmp_path / "mine.json").write_text(json.dumps(unstructure(OWN)))
    for name in ("machines/own.toml", "mine.json", str(tmp_path / "mine.json")):
        found = build_cluster(ClusterSpec(levels=LEVELS, device=name), registry(), tmp_path)
        assert found == built(levels=LEVELS, device=OWN), name


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("absent.toml", None, r"cluster.device: there is no file .*absent.toml.*`nest devices` lists"),
        ("folder/", None, "cluster.device: there is no file"),
        ("own.toml", "memory = 5.0", r"own.toml.*name"),
        ("own.toml", device_text(OWN) + "[calibration]\ncast = 9\n", "own.toml"),
        ("own.yaml", "name: [", "own.yaml"),
        ("own.json", "{}", "own.json"),
    ],
)
def test_a_file_that_is_no_device_is_named(tmp_path: Path, name: str, content: str | None, told: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=told):
        build_cluster(ClusterSpec(levels=LEVELS, device=name), registry(), tmp_path)
