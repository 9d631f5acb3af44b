"""Plug-ins that are not installed: files and modules that the environment or the command line names."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import nest
from nest.hooks import VERSION
from nest.hooks.registry import registry
from tests import processes

REPOSITORY = Path(nest.__file__).resolve().parent.parent

PLUGIN = """
from dataclasses import dataclass

from nest.hooks import hook


@dataclass
class Relaxed:
    name: str = "relaxed"

    def weights(self, micro_batches, stages):
        return float(micro_batches), float(stages - 1)

    def in_flight(self, stage, stages, micro_batches):
        return micro_batches


@hook
def nest_schedules():
    return [Relaxed()]


@hook
def nest_commands(app):
    app.command("relax")(lambda: print("relaxed"))
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "relaxed.py"
    path.write_text(PLUGIN)
    monkeypatch.setenv("NEST_PLUGINS", str(path))
    return path


def run(file: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "NEST_PLUGINS": ""}
    return processes.run([sys.executable, "-m", "nest", *arguments], cwd=file.parent, env=environment)


def test_a_file_joins(file: Path) -> None:
    known = registry()
    assert known.origin("schedules", "relaxed") == ("relaxed.py", "")
    assert known.warnings == ()
    assert "relaxed.py" in {state.distribution for state in known.states()}


def test_a_module_joins(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(file.parent))
    file.rename(file.parent / "relaxed_module.py")
    monkeypatch.setenv("NEST_PLUGINS", os.pathsep.join(["relaxed_module", "no_such_module"]))
    known = registry()
    assert known.origin("schedules", "relaxed") == ("relaxed_module", "")
    (warning,) = known.warnings
    assert warning.startswith("plug-in no_such_module is disabled: loading it raised ModuleNotFoundError")


@pytest.mark.parametrize("name", ["all", "relaxed.py", "relaxed"])
def test_it_can_be_switched_off(file: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEST_DISABLED_PLUGINS", name)
    known = registry()
    assert "relaxed" not in known.schedules()
    assert "1f1b" in known.schedules()
    assert known.warnings == ()
    assert known.states()[-1].state == "switched off (NEST_DISABLED_PLUGINS)"


@pytest.mark.parametrize(("needed", "accepted"), [(VERSION, True), (VERSION + 1, False), ("'new'", False)])
def test_hooks_that_are_too_new_are_refused(file: Path, needed: object, accepted: bool) -> None:
    file.write_text(f"hook_version = {needed}\n{PLUGIN}")
    known = registry([object()])  # Another than that of the process, which knows the file as it was.
    assert ("relaxed" in known.schedules()) == accepted
    refusals = [line for line in known.warnings if "version" in line]
    assert len(refusals) == 1 - accepted
    if not accepted:
        assert f"relaxed.py is disabled: loading it is refused: it needs version {needed} of the hooks" in refusals[0]


def test_the_command_line_takes_files_on_either_side_of_a_command(file: Path) -> None:
    before = run(file, "--plugin", "relaxed.py", "relax")
    behind = run(file, "relax", "--plugin=relaxed.py")
    assert (before.stdout, before.stderr, before.returncode) == ("relaxed\n", "", 0)
    assert (behind.stdout, behind.stderr, behind.returncode) == ("relaxed\n", "", 0)
    missing = run(file, "plugins", "--plugin", "other.py")
    assert (missing.stdout, missing.returncode) == ("", 2)
    assert missing.stderr == "nest: --plugin other.py: there is no such file; name a Python file, FILE.py.\n"
