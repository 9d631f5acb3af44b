"""`nest plugins doctor` finds every kind of fault, and says which object has it and why."""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import gettempdir
from threading import Event
from typing import Any

import pytest

from nest.testing import SAMPLE_CLUSTERS, SAMPLE_MODELS, check
from nest_testing.conformance import check_within
from testing_tests.faulty_plugins import FAULTS
from tests import processes

ROWS = [(kind, item, expected) for kind, of_kind in FAULTS.items() for item, expected in of_kind]
REPOSITORY = Path(__file__).resolve().parents[4]
PATHS = os.pathsep.join((str(REPOSITORY), str(Path(__file__).resolve().parents[1])))


def test_there_are_forty_kinds_of_fault() -> None:
    assert len({(kind, item.name) for kind, item, _ in ROWS}) == len(ROWS) >= 40


@pytest.mark.longer
@pytest.mark.parametrize(("kind", "item", "expected"), ROWS, ids=[f"{kind}-{item.name}" for kind, item, _ in ROWS])
def test_the_kit_finds_it(kind: str, item: Any, expected: str) -> None:
    options = {"models": SAMPLE_MODELS[:2], "clusters": SAMPLE_CLUSTERS[:1]} if kind == "strategies" else {}
    failed = {each.check: each.told for each in check(item, kind, **options) if not each.passed}
    assert expected in failed
    assert len(failed[expected].split()) > 3


@pytest.mark.longer
def test_a_home_in_the_temporary_folder_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a home is where the kit would put it, it puts it elsewhere."""
    monkeypatch.setenv("HOME", gettempdir())
    (row,) = [each for each in ROWS if each[1].name == "at_home"]
    test_the_kit_finds_it(*row)


class Endless:
    """A schedule that returns in the environment it was first asked in only."""

    name = "endless"

    def __init__(self) -> None:
        self.home, self.done = os.environ.get("HOME"), Event()

    def weights(self, micro_batches: int, stages: int) -> tuple[float, float]:
        if os.environ.get("HOME") != self.home:
            self.done.wait(60)
        return micro_batches - 1.0, 1.0

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> int:
        return min(micro_batches, stages - stage + 1)


def test_an_object_that_never_returns_leaves_the_environment_as_it_was() -> None:
    before, endless = dict(os.environ), Endless()
    (finding,) = check_within(0.5, endless, "schedules")
    assert "timed out" in finding.told
    assert dict(os.environ) == before
    endless.done.set()


@pytest.mark.slow
def test_the_doctor_finds_all_of_them(tmp_path: Path) -> None:
    environment = {**os.environ, "NEST_PLUGINS": "testing_tests.faulty_plugins", "PYTHONPATH": PATHS}
    command = [sys.executable, "-m", "nest", "plugins", "doctor", "--json"]
    told: subprocess.CompletedProcess[str] = processes.run(command, cwd=tmp_path, env=environment)
    assert told.returncode == 1
    document = json.loads(told.stdout)
    failed = {
        (each["kind"], each["name"]): {
            found["check"]: found["told"] for found in each["findings"] if not found["passed"]
        }
        for each in document["objects"]
    }
    disabled = " ".join(document["set_aside"].get("testing_tests.faulty_plugins", []))
    missed = [
        (kind, item.name)
        for kind, item, expected in ROWS
        if expected not in failed.get((kind, item.name), ()) and f"{item.name!r} returned an invalid" not in disabled
    ]
    assert missed == []
