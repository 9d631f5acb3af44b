"""`nest topology import` and `profiles`, and problems over the files themselves."""

import json
from pathlib import Path

import pytest

from nest.cli import output
from nest.io import read
from nest.spec import ClusterOfFile
from networks_tests.test_topology_command import PROFILE
from tests.command_line import Caller

CONF = "SwitchName=root Switches=leaf[1-2]\nSwitchName=leaf1 Nodes=n[1-2]\nSwitchName=leaf2 Nodes=n[3-4]\n"
SLOWER = 'device = "h100-sxm"\n[[tiers]]\nlink = "infiniband-ndr"\n[[tiers]]\nlink = "infiniband-hdr"\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "topology.conf").write_text(CONF)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(output, "_noted", set())
    return tmp_path


def test_what_is_assumed_is_told_apart_from_the_result(folder: Path, call: Caller) -> None:
    code, out, err = call("topology", "import", "topology.conf", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["cluster"]["hosts"] == ["n1", "n2", "n3", "n4"]
    assert document["cluster"]["devices_per_host"] == 8
    assert err.splitlines() == [f"nest: assumed: {sentence}" for sentence in document["assumed"]]
    assert any("h100-ndr" in sentence for sentence in document["assumed"])
    assert "b200-sxm" in call("topology", "import", "topology.conf", "--link-profile", "b200-xdr")[1]


@pytest.mark.longer
def test_solving_tells_it_too(folder: Path, call: Caller) -> None:
    content = {
        "nest": 1,
        "profile": PROFILE,
        "training": {"global_batch": 16},
        "cluster": {"topology": "topology.conf"},
    }
    (folder / "problem.json").write_text(json.dumps(content))
    code, _, err = call("solve", "problem.json")
    assert code == 0
    assert "nest: assumed: A host has 8 accelerators: link profile h100-ndr." in err


def test_show_and_levels_read_files_and_sections(folder: Path, call: Caller) -> None:
    assert call("topology", "import", "topology.conf", "-o", "cluster.yaml")[0] == 0
    shown = [json.loads(call("topology", "show", name, "--json")[1]) for name in ("topology.conf", "cluster.yaml")]
    assert {**shown[0], "source": None} == {**shown[1], "source": None}
    assert call("topology", "levels", "topology.conf", "-o", "levels.yaml")[0] == 0
    assert read(folder / "levels.yaml", ClusterOfFile) == read(folder / "cluster.yaml", ClusterOfFile)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("none.conf",), "there is no such file"),
        (("topology.conf", "--output", "cluster.toml"), "cluster.toml: the section is not written as TOML"),
        (("machine.xml#gpu0",), "reads a part 'gpu0'"),
        (("machine.txt#gpu0",), "reads a part 'gpu0'"),
        (("topology.conf", "--format", "slurm"), "slurm-conf"),
        (("topology.conf", "--format", "graphml"), "the importer 'graphml' does not know this file"),
        (("links.toml", "--format", "torus"), "does not know this file"),
        (("topology.conf", "--link-profile", "h100"), "h100-ndr"),
        (("topology.conf", "--link-profile", "none.toml"), "there is no file"),
        (("topology.conf#leaf9",), "topology.conf: there is no switch 'leaf9'"),
        (("topology.conf", "--output", "none/cluster.yaml"), "none"),
        (("links.toml",), "links.toml"),
    ],
)
def test_mistakes_are_sentences(arguments: tuple[str, ...], reason: str, folder: Path, call: Caller) -> None:
    (folder / "links.toml").write_text(SLOWER)
    (folder / "machine.xml").write_text('<system version="1">\n<cpu numaid="0">\n</cpu></system>')
    (folder / "machine.txt").write_text("\tGPU0\tGPU1\nGPU0\tX\tNV2\nGPU1\tNV2\tX\n")
    code, out, err = call("topology", "import", *arguments)
    assert (code, out) == (2, "")
    assert reason in err
    assert "Traceback" not in err


def test_profiles_are_listed_and_described(call: Caller) -> None:
    listed = json.loads(call("topology", "profiles", "--json")[1])["profiles"]
    assert {"a100-hdr", "h100-ndr", "h200-ndr", "b200-ndr", "b200-xdr", "gb200-nvl72-ndr", "mi300x-roce"} <= {
        each["name"] for each in listed
    }
    assert len(call("topology", "profiles")[1].splitlines()) == len(listed)
    assert "infiniband-ndr" in call("topology", "profiles", "h100-ndr")[1]
    assert call("topology", "profiles", "h100")[0] == 2


def test_a_section_is_not_a_topology(folder: Path, call: Caller) -> None:
    assert call("topology", "import", "topology.conf", "-o", "cluster.yaml")[0] == 0
    code, _, err = call("topology", "import", "cluster.yaml", "-o", "again.yaml")
    assert code == 2
    assert "cluster.yaml: this is a whole `cluster` section" in err
    assert not (folder / "again.yaml").exists()
