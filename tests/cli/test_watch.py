"""`nest solve --watch`: each time a file of the problem is written to, the answer of what it says then."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Timer
from time import sleep
from typing import Any

import pytest

import nest
from nest.cli import watch
from tests import processes, shared_answers
from tests.test_deadline import OPEN


@pytest.fixture(autouse=True)
def searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is watched has to search."""
    monkeypatch.setenv(shared_answers.FOLDER, "")


SCRIPT = """
import signal, sys
from nest.cli.app import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # Who runs tests in the background has it ignored.
sys.argv = ["nest", "solve", "problem.json", "--watch", "--json"]
main()
"""
CHANGED = {**OPEN, "cluster": {**OPEN["cluster"], "memory": "40 GB"}}


@pytest.fixture
def watching(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """The command, at work on a problem in a folder of its own."""
    (tmp_path / "problem.json").write_text(json.dumps(OPEN))
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", SCRIPT], cwd=tmp_path, **pipes) as command:
        late = Timer(60, command.kill)
        late.start()
        yield command
        late.cancel()
        command.kill()


@pytest.mark.longer
def test_what_is_saved_is_answered_until_ctrl_c(watching: "subprocess.Popen[str]", tmp_path: Path) -> None:
    assert watching.stdout is not None
    problem = tmp_path / "problem.json"
    assert json.loads(watching.stdout.readline()) == nest.solve(OPEN).to_dict()
    problem.write_text(json.dumps(CHANGED))
    assert json.loads(watching.stdout.readline()) == nest.solve(CHANGED).to_dict()
    problem.write_text("{")
    assert watching.stderr is not None
    told = [watching.stderr.readline() for _ in range(2)]
    assert told[0] == "nest: watching problem.json; press Ctrl-C to stop.\n"
    assert told[1].startswith("nest: problem.json:1: this is not JSON")
    problem.unlink()
    assert watching.stderr.readline() == "nest: problem.json: there is no such file.\n"
    problem.write_text(json.dumps(OPEN))
    assert json.loads(watching.stdout.readline())["status"] == nest.solve(OPEN).status
    sleep(0.5)  # Until it waits again.
    watching.send_signal(signal.SIGINT)
    assert watching.communicate() == ("", "")
    assert watching.returncode == 0


def test_what_is_piped_in_cannot_be_watched() -> None:
    command = processes.run([sys.executable, "-m", "nest", "solve", "-", "--watch"], given=json.dumps(OPEN))
    assert (command.returncode, command.stdout) == (2, "")
    assert command.stderr == "nest: --watch needs problem files; pipes and options are read once.\n"


def test_a_file_that_is_written_in_several_steps_is_read_after_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unchanged, emptied, half written, whole, and whole still."""
    path, states = Path("problem.yaml"), iter([(1, 80), (2, 0), (3, 40), (4, 80), (4, 80), (5, 90)])
    monkeypatch.setattr(watch, "file_state", lambda _: next(states))
    monkeypatch.setattr(watch.time, "sleep", lambda _: None)
    watch._wait({path: (1, 80)})
    assert list(states) == [(5, 90)]
