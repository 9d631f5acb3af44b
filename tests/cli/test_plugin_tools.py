"""`nest plugins doctor` and `nest plugins new` from the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nest as package
from tests import processes

REPOSITORY = Path(package.__file__).resolve().parent.parent

SHORT = """
from nest.hooks import hook


class Short:
    name = "short"

    def weights(self, micro_batches, stages):
        return micro_batches / 2, 0.0

    def in_flight(self, stage, stages, micro_batches):
        return 1


@hook
def nest_schedules():
    return [Short()]
"""


def nest(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    path = os.pathsep.join([str(folder), str(REPOSITORY)])
    command = [sys.executable, "-m", "nest", *arguments]
    return processes.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": path})


def installed(folder: Path, name: str, module: str) -> None:
    """A distribution called `name` with one module, as pip leaves it."""
    (folder / f"{name}.py").write_text(module)
    information = folder / f"{name}-2.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2\n")
    (information / "entry_points.txt").write_text(f"[nest]\n{name} = {name}\n")


@pytest.mark.longer
def test_what_does_not_conform_is_explained(tmp_path: Path) -> None:
    installed(tmp_path, "hasty", SHORT)
    told = nest(tmp_path, "plugins", "doctor")
    assert told.returncode == 1
    assert told.stderr == ""
    lines = told.stdout.splitlines()
    assert lines[0] == "hasty 2, schedule short: 6 of 9 checks passed"
    failed = lines.index("  FAILED  a batch takes no less than its slowest stage")
    assert "1 micro-batches, 1 stages: A + B is 0.5" in lines[failed + 1]
    document = json.loads(nest(tmp_path, "plugins", "doctor", "Hasty", "--json").stdout)
    assert document["healthy"] is False
    (found,) = document["objects"]
    assert (found["distribution"], found["version"], found["kind"], found["name"]) == (
        "hasty",
        "2",
        "schedules",
        "short",
    )
    assert [f["passed"] for f in found["findings"]].count(False) == 3


def test_what_cannot_be_loaded_is_not_healthy(tmp_path: Path) -> None:
    installed(tmp_path, "torn", "import no_such_module")
    told = nest(tmp_path, "plugins", "doctor", "torn")
    assert told.returncode == 1
    assert "plug-in torn 2 is disabled" in told.stderr
    assert told.stdout.startswith("torn 2: disabled: ")
    document = json.loads(nest(tmp_path, "plugins", "doctor", "torn", "--json").stdout)
    assert (document["healthy"], document["objects"]) == (False, [])
    assert "no_such_module" in document["set_aside"]["torn"][0]


@pytest.mark.longer
def test_without_plug_ins_there_is_nothing_to_do(tmp_path: Path) -> None:
    told = nest(tmp_path, "plugins", "doctor")
    assert told.returncode == 0
    assert "no other plug-ins are installed" in told.stdout
    told = nest(tmp_path, "plugins", "doctor", "nest-plan")
    assert told.returncode == 2
    assert "there is no distribution with plug-ins called 'nest-plan'" in told.stderr
    assert len(told.stderr.splitlines()) == 1


def test_a_new_distribution_is_written_and_nothing_overwritten(tmp_path: Path) -> None:
    told = nest(tmp_path, "plugins", "new", "nest-slow", "--kind", "cost-model")
    assert told.returncode == 0
    listed = [Path(line) for line in told.stdout.splitlines()]
    assert listed == [
        Path("nest-slow") / name for name in ("pyproject.toml", "README.md", "nest_slow.py", "tests/test_nest_slow.py")
    ]
    before = {path: (tmp_path / path).read_text() for path in listed}
    again = nest(tmp_path, "plugins", "new", "nest-slow", "--kind", "schedule")
    assert again.returncode == 2
    assert again.stderr == "nest: nest-slow: this exists already; choose another name.\n"
    assert {path: (tmp_path / path).read_text() for path in listed} == before
    assert [path.name for path in tmp_path.iterdir()] == ["nest-slow"]
