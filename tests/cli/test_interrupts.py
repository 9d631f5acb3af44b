"""Ctrl-C, as the signal that a terminal sends."""

import json
import sys
from pathlib import Path

import pytest

import nest
from tests import processes
from tests.test_deadline import OPEN

PRESSED = """
import os, signal, sys
from contextlib import contextmanager
import nest.cli.{command} as command
from nest.cli.app import main

left = {times}
signal.signal(signal.SIGINT, signal.default_int_handler)  # Who runs tests in the background has it ignored.

@contextmanager
def watching(doing):
    def told(standing):
        global left
        if left and ({when}):
            left -= 1
            os.kill(os.getpid(), signal.SIGINT)
    yield told

command.progress_line = watching
sys.argv = ["nest", *{arguments}]
main()
"""
PRICING, SEARCHING, PROVING = "0.7 < standing.priced < 1", "standing.best is not None", "standing.proving"


def interrupted(
    folder: Path, *arguments: str, when: str, command: str = "solve", times: int = 1
) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `nest ARGUMENTS` that Ctrl-C reaches at some moment."""
    script = PRESSED.format(command=command, arguments=list(arguments), when=when, times=times)
    ended = processes.run([sys.executable, "-c", script], cwd=folder)
    return ended.returncode, ended.stdout, ended.stderr


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(OPEN))
    return path


@pytest.mark.parametrize("when", [PRICING, SEARCHING])
def test_the_best_plan_so_far_is_written_and_holds(problem: Path, tmp_path: Path, when: str) -> None:
    written = tmp_path / "plan.json"
    code, printed, errors = interrupted(tmp_path, "solve", str(problem), "-o", str(written), when=when)
    assert code == 0
    assert printed.startswith("Best plan found in time:")
    assert "stopp" not in errors
    plan = json.loads(written.read_text())
    assert plan["status"] == "feasible"
    assert plan["lower_bound"] <= plan["batch_time"]
    assert nest.check(plan).ok


def test_twice_ends_at_once(problem: Path, tmp_path: Path) -> None:
    code, printed, errors = interrupted(tmp_path, "solve", str(problem), when="True", times=2)
    assert (code, printed) == (130, "")
    assert "Traceback" not in errors


def test_json_is_one_document_and_what_follows_is_not_begun(problem: Path, tmp_path: Path) -> None:
    code, printed, errors = interrupted(tmp_path, "solve", str(problem), "--json", when=SEARCHING)
    assert (code, errors) == (0, "")
    assert json.loads(printed)["status"] == "feasible"
    code, printed, errors = interrupted(tmp_path, "solve", str(problem), str(problem), when=SEARCHING)
    assert code == 130
    assert len(printed.splitlines()) == 1
    assert errors.endswith(f"nest: stopped before {problem}.\n")


def test_the_best_plans_so_far_are_told(problem: Path, tmp_path: Path) -> None:
    code, printed, _ = interrupted(tmp_path, "solve", str(problem), "--best", "3", "--json", when=SEARCHING)
    assert code == 0
    assert 1 <= len(json.loads(printed)["plans"]) <= 2


def test_a_proof_is_left_open(problem: Path, tmp_path: Path) -> None:
    code, printed, _ = interrupted(tmp_path, "solve", str(problem), "--verify", "--json", when=PROVING)
    plan = json.loads(printed)
    assert (code, plan["status"], plan["verification"]["status"]) == (1, "optimal", "open")
    written = tmp_path / "plan.json"
    written.write_text(printed)
    code, printed, errors = interrupted(tmp_path, "verify", str(written), "--json", when="True", command="verify")
    assert code == 1, errors
    assert json.loads(printed)["status"] == "open"
