"""`nest devices`, `nest clusters`, `nest stacks` and `nest strategies`."""

import json
import subprocess
import sys

import pytest

from nest.catalogue import clusters, devices, stacks
from tests import processes


def nest(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return processes.run([sys.executable, "-c", "from nest.cli.app import main; main()", *arguments])


@pytest.mark.longer
@pytest.mark.parametrize(("command", "known"), [("devices", devices()), ("clusters", clusters()), ("stacks", stacks())])
def test_lists(command: str, known: dict[str, object]) -> None:
    told = nest(command)
    assert told.returncode == 0
    assert all(name in told.stdout for name in known)
    listed = json.loads(nest(command, "--json").stdout)[command]
    assert [entry["name"] for entry in listed] == list(known)


def test_one_entry_comes_with_its_sources() -> None:
    told = nest("devices", "h100-sxm")
    assert told.returncode == 0
    assert all(source in told.stdout for source in devices()["h100-sxm"].sources)
    content = json.loads(nest("devices", "h100-sxm", "--json").stdout)
    assert content["peak"]["bf16"] == 989.4e12
    assert "nvfp4" not in content["peak"]
    told = nest("stacks", "fsdp")
    assert all(source in told.stdout for source in stacks()["fsdp"].sources)
    content = json.loads(nest("stacks", "fsdp", "--json").stdout)
    assert content["training"]["overlap"] == {"data": True, "tensor": False, "pipeline": False, "experts": False}
    content = json.loads(nest("clusters", "dgx-h100-superpod-64", "--json").stdout)
    assert [level["fanout"] for level in content["levels"]] == [8, 8]


@pytest.mark.parametrize(("command", "near"), [("devices", "h100-sxm"), ("clusters", "dgx-h100-superpod")])
def test_an_unknown_name_is_bad_input(command: str, near: str) -> None:
    told = nest(command, near.replace("100", "10"))
    assert told.returncode == 2
    assert told.stdout == ""
    assert near in told.stderr
    assert "Traceback" not in told.stderr


def test_strategies_come_with_their_distribution() -> None:
    listed = json.loads(nest("strategies", "--json").stdout)["strategies"]
    assert [(row["name"], row["after"], row["distribution"]) for row in listed] == [
        ("tp", [], "nest-planner"),
        ("sp", ["tp"], "nest-planner"),
        ("cp", ["tp", "sp"], "nest-planner"),
        ("ep", ["tp", "sp", "cp"], "nest-planner"),
        ("etp", ["tp", "sp", "cp", "ep"], "nest-planner"),
        ("batch", ["tp", "sp", "cp", "ep", "etp"], "nest-planner"),
    ]
    told = nest("strategies").stdout.splitlines()
    assert [line.split()[:2] for line in told[3:5]] == [["sp", "tp"], ["cp", "tp,"]]
