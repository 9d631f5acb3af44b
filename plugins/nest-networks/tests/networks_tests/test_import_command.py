"""`nest topology import` and `profiles`, and problems over the files themselves."""

import json
from pathlib import Path

import pytest

from nest.cli import output
from nest.io import read
from nest.spec import ClusterOfFile
from networks_tests.test_topology_command import PROFILE
from tests.command_line import call

CONF = "SwitchName=root Switches=leaf[1-2]\nSwitchName=leaf1 Nodes=n[1-2]\nSwitchName=leaf2 Nodes=n[3-4]\n"
SLOWER = 'device = "h100-sxm"\n[[tiers]]\nlink = "infiniband-ndr"\n[[tiers]]\nlink = "infiniband-hdr"\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "topology.conf").write_text(CONF)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(output, "_noted", set())
    return tmp_path


def test_what_is_assumed_is_told_apart_from_the_result(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call(monkeypatch, "topology", "import", "topology.conf", "--json") == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document["cluster"]["hosts"] == ["n1", "n2", "n3", "n4"]
    assert document["cluster"]["devices_per_host"] == 8
    assert printed.err.splitlines() == [f"nest: assumed: {sentence}" for sentence in document["assumed"]]
    assert any("h100-ndr" in sentence for sentence in document["assumed"])
    assert call(monkeypatch, "topology", "import", "topology.conf", "--link-profile", "b200-xdr") == 0
    assert "b200-sxm" in capsys.readouterr().out


@pytest.mark.longer
def test_solving_tells_it_too(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = {
        "nest": 1,
        "profile": PROFILE,
        "training": {"global_batch": 16},
        "cluster": {"topology": "topology.conf"},
    }
    (folder / "problem.json").write_text(json.dumps(content))
    assert call(monkeypatch, "solve", "problem.json") == 0
    assert "nest: assumed: A host has 8 accelerators: link profile h100-ndr." in capsys.readouterr().err


def test_show_and_levels_read_files_and_sections(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call(monkeypatch, "topology", "import", "topology.conf", "-o", "cluster.yaml") == 0
    shown = []
    for name in ("topology.conf", "cluster.yaml"):
        capsys.readouterr()
        assert call(monkeypatch, "topology", "show", name, "--json") == 0
        shown.append({**json.loads(capsys.readouterr().out), "source": None})
    assert shown[0] == shown[1]
    assert call(monkeypatch, "topology", "levels", "topology.conf", "-o", "levels.yaml") == 0
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
def test_mistakes_are_sentences(
    arguments: tuple[str, ...],
    reason: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (folder / "links.toml").write_text(SLOWER)
    (folder / "machine.xml").write_text('<system version="1">\n<cpu numaid="0">\n</cpu></system>')
    (folder / "machine.txt").write_text("\tGPU0\tGPU1\nGPU0\tX\tNV2\nGPU1\tNV2\tX\n")
    assert call(monkeypatch, "topology", "import", *arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert reason in printed.err
    assert "Traceback" not in printed.err


def test_profiles_are_listed_and_described(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(monkeypatch, "topology", "profiles", "--json") == 0
    listed = json.loads(capsys.readouterr().out)["profiles"]
    assert {"a100-hdr", "h100-ndr", "h200-ndr", "b200-ndr", "b200-xdr", "gb200-nvl72-ndr", "mi300x-roce"} <= {
        each["name"] for each in listed
    }
    assert call(monkeypatch, "topology", "profiles") == 0
    assert len(capsys.readouterr().out.splitlines()) == len(listed)
    assert call(monkeypatch, "topology", "profiles", "h100-ndr") == 0
    assert "infiniband-ndr" in capsys.readouterr().out
    assert call(monkeypatch, "topology", "profiles", "h100") == 2


def test_a_section_is_not_a_topology(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "topology", "import", "topology.conf", "-o", "cluster.yaml") == 0
    assert call(monkeypatch, "topology", "import", "cluster.yaml", "-o", "again.yaml") == 2
    assert "cluster.yaml: this is a whole `cluster` section" in capsys.readouterr().err
    assert not (folder / "again.yaml").exists()
