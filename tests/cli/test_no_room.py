"""Every command on a full disk, where it cannot write, and before a closed pipe: a sentence, or done."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nest
from nest.cli.app import COMMANDS, GROUPS
from nest.io import KEPT_IN
from tests import processes
from tests.whatif.test_explain import FEW

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")

PRINTING: dict[str, tuple[str, ...]] = {
    "solve": ("problem.json",),
    "evaluate": ("problem.json",),
    "check": ("plan.json",),
    "verify": ("plan.json",),
    "simulate": ("plan.json",),
    "explain": ("plan.json", "--only", "binding"),
    "frontier": ("plan.json",),
    "compare": ("problem.json", "--planner", "manual"),
    "recommend": ("problem.json", "--within", "30d", "--cluster", "p5.48xlarge"),
    "sweep": ("study.json", "--output", "rows.csv", "--jobs", "1"),
    "export": ("plan.json", "--to", "dot"),
    "report": ("plan.json", "--output", "page.html", *(f"--without={part}" for part in ("alternatives", "frontier"))),
    "init": ("--model", "gpt2", "--cluster", "p5.48xlarge", "--global-batch", "8", "--sequence-length", "128"),
    "models": (),
    "devices": (),
    "clusters": (),
    "stacks": (),
    "strategies": (),
    "schema": ("problem",),
    "measure": ("--help",),
    "topology": ("--help",),
    "calibrate": ("--help",),
    "plugins": ("list",),
}
SILENT = ("init",)
"""Commands whose result is a file alone."""

WRITING = {
    "solve": ("problem.json", "--output", "{}"),
    "simulate": ("plan.json", "--trace", "{}"),
    "report": ("plan.json", "--without=alternatives", "--without=frontier", "--without=sensitivity", "--output", "{}"),
    "export": ("plan.json", "--to", "dot", "--output", "{}"),
    "recommend": ("problem.json", "--within", "30d", "--cluster", "p5.48xlarge", "--curve", "{}.jsonl"),
    "init": (*PRINTING["init"], "--force", "--output", "{}"),
}

LIMITED = """
import resource, sys
from nest.cli.app import main
resource.setrlimit(resource.RLIMIT_FSIZE, (40, 40))  # As on a disk that is full after so many bytes.
sys.argv = ["nest", *{arguments}]
main()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("no-room")
    problem = {**FEW, "training": {**FEW["training"], "tokens": 10**6, "schedule": "1f1b"}}
    (path / "problem.json").write_text(json.dumps(problem))
    (path / "plan.json").write_text(json.dumps(nest.solve(problem).to_dict()))
    (path / "study.json").write_text(
        json.dumps({"nest": 1, "base": "problem.json", "vary": {"training.global_batch": [8]}})
    )
    return path


def test_every_command_is_tried() -> None:
    assert PRINTING.keys() == {*COMMANDS, *GROUPS}


def printed_to(place: str, folder: Path, tmp_path: Path, *words: str, kept: str = "off") -> tuple[int, str]:
    """Exit code and errors of a command whose results go somewhere."""
    errors = tmp_path / "errors"
    command, files = [sys.executable, "-m", "nest", *words], [os.devnull, place, str(errors)]
    environment = os.environ | {KEPT_IN: kept}
    code = processes.fork(command, files, cwd=folder, env=environment, timeout=120)
    return code, errors.read_text()


@pytest.mark.parametrize("command", PRINTING)
def test_a_full_disk_behind_standard_output_is_told(command: str, folder: Path, tmp_path: Path) -> None:
    words = PRINTING[command]
    if command == "init":
        words = (*words, "--output", str(tmp_path / "problem.yaml"))
    code, errors = printed_to("/dev/full", folder, tmp_path, command, *words)
    assert "Traceback" not in errors
    if command not in SILENT:
        assert errors.splitlines()[-1] == "nest: standard output: No space left on device."
        assert code == 2


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("solve", "nowhere.yaml"), ("nothing",)], ids=" ".join)
def test_a_full_disk_behind_both_streams_ends_in_silence(words: tuple[str, ...], folder: Path, tmp_path: Path) -> None:
    command, files = [sys.executable, "-m", "nest", *words], [os.devnull, "/dev/full", "/dev/full"]
    assert processes.fork(command, files, cwd=folder, env=dict(os.environ), timeout=120) == 2


@pytest.mark.parametrize("command", ["solve", "models", "explain"])
def test_a_closed_pipe_is_no_error(command: str, folder: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        words = [sys.executable, "-m", "nest", command, *PRINTING[command]]
        done = subprocess.run(words, cwd=folder, stdout=pipe, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert "pipe" not in done.stderr


@pytest.mark.parametrize("command", WRITING)
@pytest.mark.parametrize("place", ["file/below", "/dev/full", "limited"])
def test_what_cannot_be_written_is_told_and_nothing_is_left(
    command: str, place: str, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    target = str(tmp_path / ("there" if place == "limited" else place) if place != "/dev/full" else place)
    if place == "/dev/full" and command in ("export", "recommend"):
        pytest.skip("writes several files, or one of a certain name")
    words = [command, *(each.format(target) for each in WRITING[command])]
    script = LIMITED.format(arguments=words) if place == "limited" else ""
    module = ["-c", script] if script else ["-m", "nest", *words]
    done = subprocess.run(
        [sys.executable, *module], cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == 2, done.stderr
    assert "write" in done.stderr.splitlines()[-1]
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_folder_of_answers_that_cannot_be_written_to_is_one_line(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    output = tmp_path / "out"
    for words in (("solve", "problem.json"), ("explain", "plan.json", "--only", "alternatives", "--jobs", "2")):
        code, errors = printed_to(str(output), folder, tmp_path, *words, kept=str(tmp_path / "file" / "kept"))
        (line,) = (each for each in errors.splitlines() if each.startswith("nest: warning: "))
        assert line == f"nest: warning: NEST_CACHE: {tmp_path}/file/kept: the answer is not kept: Not a directory."
        told = output.read_text()
        assert printed_to(str(output), folder, tmp_path, *words)[0] == code == 0
        assert output.read_text() == told
