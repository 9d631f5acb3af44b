"""Ctrl-C, as the signal that a terminal sends."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nest
from tests import processes, shared_answers
from tests.test_deadline import OPEN


@pytest.fixture(autouse=True)
def searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stopped has to search."""
    monkeypatch.setenv(shared_answers.FOLDER, "")


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


@pytest.mark.longer
@pytest.mark.parametrize("when", [PRICING, SEARCHING])
def test_the_best_plan_so_far_is_written_and_holds(problem: Path, tmp_path: Path, when: str) -> None:
    written = tmp_path / "plan.json"
    code, printed, errors = interrupted(tmp_path, "solve", str(problem), "-o", str(written), when=when)
    assert code == 0
    assert "\nBest plan found" in printed
    assert "stopp" not in errors
    plan = json.loads(written.read_text())
    assert plan["status"] == "feasible"
    assert plan["lower_bound"] <= plan["batch_time"]
    assert nest.check(plan).ok


def test_twice_ends_at_once(problem: Path, tmp_path: Path) -> None:
    code, printed, errors = interrupted(tmp_path, "solve", str(problem), when="True", times=2)
    assert (code, printed) == (130, "")
    assert "Traceback" not in errors


@pytest.mark.longer
def test_json_is_one_document_and_what_follows_is_not_begun(problem: Path, tmp_path: Path) -> None:
    code, printed, errors = interrupted(tmp_path, "solve", str(problem), "--json", when=SEARCHING)
    assert (code, errors) == (0, "")
    assert json.loads(printed)["status"] == "feasible"
    code, printed, errors = interrupted(tmp_path, "solve", str(problem), str(problem), when=SEARCHING)
    assert code == 130
    assert len(printed.splitlines()) == 1
    assert errors.endswith(f"nest: stopped before {problem}.\n")


@pytest.mark.longer
def test_a_proof_is_left_open(problem: Path, tmp_path: Path) -> None:
    code, printed, _ = interrupted(tmp_path, "solve", str(problem), "--verify", "--json", when=PROVING)
    plan = json.loads(printed)
    assert (code, plan["status"] in ("optimal", "near-optimal"), plan["verification"]["status"]) == (1, True, "open")
    written = tmp_path / "plan.json"
    written.write_text(printed)
    code, printed, errors = interrupted(tmp_path, "verify", str(written), "--json", when="True", command="verify")
    assert code == 1, errors
    assert json.loads(printed)["status"] == "open"


@pytest.mark.longer
@pytest.mark.skipif(sys.platform == "win32", reason="signals reach no process there")
@pytest.mark.parametrize("module", ["typer", "pluggy", "nest.api", "nest.cli.output"])
@pytest.mark.parametrize("as_module", [False, True])
def test_while_nest_is_loaded_it_ends_with_a_sentence(module: str, as_module: bool, tmp_path: Path) -> None:
    """The signal comes when a module is looked for."""
    (tmp_path / "sitecustomize.py").write_text(PRESSED_AT_IMPORT.format(module=module))
    script = tmp_path / "nest"
    script.write_text("import sys\nfrom nest.cli.app import main\nsys.exit(main())\n")
    words = ["-m", "nest"] if as_module else [str(script)]
    done = subprocess.run(
        [sys.executable, *words, "solve", "nowhere.yaml"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(nest.__file__).parents[1])])},
        cwd=tmp_path.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "nest: stopped.\n")


def test_other_programs_that_load_nest_handle_it_themselves() -> None:
    words = "import signal, nest; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    script = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {words}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "True\n"


PRESSED_AT_IMPORT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # Who runs tests in the background has it ignored.

class Pressing:
    def find_spec(self, name, *_):
        if name == "{module}":
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Pressing())
"""
