"""`nest devices`, `nest clusters`, `nest stacks` and `nest strategies`."""

import json
import subprocess
import sys

import pytest

from nest import __version__
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


def rows(*command: str) -> list[list[str]]:
    """The cells of the table that a command prints."""
    _, _, *lines = nest(*command).stdout.splitlines()
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines]


def test_figures_of_devices_are_in_the_units_they_have() -> None:
    for name, memory, bandwidth, peak in rows("devices"):
        device = devices()[name]
        for told, known in ((memory, device.memory), (bandwidth, device.memory_bandwidth)):
            number, unit = told.split()
            assert unit.startswith("GB")
            assert abs(float(number) - known / 1e9) <= 0.5
        assert peak.endswith(" TFLOP/s")
        assert float(peak.split()[0]) == pytest.approx((device.peak.bf16 or device.peak.fp16 or 0.0) / 1e12, rel=1e-3)


def test_a_stack_is_listed_with_what_it_overlaps_alone() -> None:
    header, _, *lines = nest("stacks").stdout.splitlines()
    column = slice(header.index("what overlaps"), header.index("targets"))
    for line in lines:
        stack = stacks()[line.split()[0]]
        told = {word for word in line[column].replace(",", "").split() if word.isalpha()}
        hidden = {each for each in ("data", "tensor", "experts") if getattr(stack.training.overlap, each)}
        pipeline = {"pipeline"} if stack.pipeline_overlap or stack.training.overlap.pipeline else set()
        assert told == (hidden | pipeline or {"nothing"}), stack.name


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


def test_strategies_come_with_their_distribution() -> None:
    listed = json.loads(nest("strategies", "--json").stdout)["strategies"]
    assert {row["version"] for row in listed} == {__version__}
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
