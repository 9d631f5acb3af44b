"""`nest sweep` says what came of the points, and its exit code whether any has a plan."""

import sys
from pathlib import Path
from typing import Any

import pytest

from studies_tests.test_sweep import MEMORY, written
from tests import processes
from tests.command_line import Caller


def sweep(folder: Path, **keys: Any) -> Any:
    written(folder, **keys)
    command = [sys.executable, "-m", "nest", "sweep", "study.json", "--output", "rows.csv", "--jobs", "1"]
    return processes.run(command, cwd=folder)


@pytest.mark.longer
def test_what_is_no_problem_is_told_with_its_row(tmp_path: Path) -> None:
    done = sweep(tmp_path, points=[{MEMORY: "80 GB"}, {"model": "nonsense"}, {"model": "nonsense"}])
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "rows.csv: 3 points, 1 optimal, 2 invalid; 1 solved now"
    assert done.stderr.startswith("nest: row 2 and 1 more: ")
    assert "nonsense" in done.stderr


def test_a_wrong_path_is_bad_input(tmp_path: Path) -> None:
    done = sweep(tmp_path, vary={"cluster.memroy": ["80 GB"]})
    assert (done.returncode, done.stdout) == (2, "")
    assert "cluster.memroy is not a known key; did you mean memory?" in done.stderr
    assert list(tmp_path.glob("rows.*")) == []


def test_a_stopped_sweep_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Caller) -> None:
    def stopped(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("nest_studies.verbs.sweep", stopped)
    code, _, err = call("sweep", tmp_path / "study.json", "--output", tmp_path / "rows.csv")
    assert code == 130
    assert "rows.csv keeps the solved points; run the same command again to continue." in err
