"""Every command on a full disk, where it cannot write, before a closed pipe and under Ctrl-C: a sentence, or done."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any

import pytest
import typer

import nest
from calibrate_tests import synthetic
from nest.cli.app import app
from nest.io import KEPT_IN
from tests import processes
from tests.spec.test_measurements import COLLECTIVE
from tests.test_any_problem import MEASURED
from whatif_tests.test_explain import FEW

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")

BARE = "--without=alternatives --without=frontier --without=sensitivity"
INIT = "--model gpt2 --cluster p5.48xlarge --global-batch 8 --sequence-length 128"
CALLS = {
    "init": f"{INIT} --output out.yaml",
    "solve": "problem.json",
    "evaluate": "problem.json",
    "check": "plan.json",
    "verify": "plan.json",
    "simulate": "plan.json",
    "explain": "plan.json --only binding",
    "frontier": "plan.json",
    "compare": "problem.json --planner manual",
    "recommend": "problem.json --within 30d --cluster p5.48xlarge",
    "sweep": "study.json --output rows.csv --jobs 1",
    "export": "plan.json --to dot",
    "report": f"plan.json --output out.html {BARE}",
    "models": "",
    "devices": "",
    "clusters": "",
    "stacks": "",
    "measure": "run.log",
    "certify": "plan.json",
    "shortlist": "plan.json",
    "strategies": "",
    "schema": "problem",
    "fix": "run.sh problem.json",
    "topology doctor": "ring.graphml",
    "topology show": "torus.json",
    "topology levels": "torus.json",
    "topology import": "ring.graphml",
    "topology profiles": "",
    "calibrate collectives": "collectives.jsonl --link nvlink4",
    "calibrate devices": "runs.jsonl --folds 2",
    "calibrate memory": "runs.jsonl",
    "calibrate cluster": "runs.jsonl",
    "plugins list": "",
    "plugins doctor": "",
    "plugins new": "nest-own --kind schedule",
}
"""Every command, and what it is called with."""

WRITING = {
    "init --output": f"init {INIT} --force --output OUT",
    "solve --output": "solve problem.json --output OUT",
    "evaluate --write-problem": "evaluate --from-megatron run.sh problem.json --write-problem OUT",
    "verify --output": "verify decided.json --output OUT",
    "simulate --trace": "simulate plan.json --trace OUT",
    "recommend --curve": "recommend problem.json --within 30d --cluster p5.48xlarge --curve OUT.jsonl",
    "recommend --output": "recommend curve.jsonl --nodes 1 --output OUT",
    "sweep --output": "sweep study.json --jobs 1 --output OUT.csv",
    "export --output": "export plan.json --to dot --output OUT",
    "report --output": f"report plan.json {BARE} --output OUT",
    "report --plans": "report rows.jsonl --output out.html --plans OUT",
    "measure --output": "measure run.log --output OUT",
    "solve --certificate": "solve problem.json --certificate OUT",
    "certify --output": "certify plan.json --output OUT",
    "shortlist --output": "shortlist plan.json --output OUT",
    "schema --output": "schema problem --output OUT",
    "topology levels --output": "topology levels torus.json --output OUT",
    "topology import --output": "topology import ring.graphml --output OUT",
    "calibrate collectives --output": "calibrate collectives collectives.jsonl --link nvlink4 --output OUT",
    "calibrate devices --output": "calibrate devices runs.jsonl --folds 2 --output OUT",
    "calibrate memory --output": "calibrate memory runs.jsonl --output OUT",
    "calibrate cluster --output": "calibrate cluster runs.jsonl --output OUT",
    "plugins new --output": "plugins new nest-own --kind schedule --output OUT",
}
"""Every option that names what is written, in a call."""

READ = ("--from-megatron", "--from", "--plan", "--problem", "--compare", "--for")
"""Options that name what is read."""

SLOW = ("calibrate collectives", "frontier", "verify", "topology import", "init")
"""Commands of a second and more."""

SETUP = """
import os, sys
from nest.cli.app import main
sys.argv = ["nest", *{arguments}]
"""

LIMITED = (
    SETUP
    + """
import io, resource
from contextlib import redirect_stderr, redirect_stdout
most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (40, most))  # As on a disk that is full after so many bytes.
told = io.StringIO()
try:
    with redirect_stdout(io.StringIO()), redirect_stderr(told):
        main()
finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    sys.stderr.write(told.getvalue())
"""
)

UNREAD = (
    SETUP
    + """
reading, writing = os.pipe()
os.close(reading)
os.dup2(writing, 1)
os.close(writing)
main()
"""
)

CLOSED = (
    SETUP
    + """
os.close(1)
sys.stdout = None  # As Python finds it.
main()
"""
)

PRESSED = (
    SETUP
    + """
import signal
from nest.cli import stop_at_once
calls = 0

def called(*_):
    global calls
    calls += 1
    if calls == {after}:
        os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # Who runs tests in the background has it ignored.
stop_at_once()
sys.setprofile(called)
main()
"""
)


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every command with its options whose values are paths."""
    waiting: list[tuple[str, Any]] = [("", typer.main.get_command(app))]
    for name, command in waiting:
        if hasattr(command, "list_commands"):
            found = [(each, command.get_command(None, each)) for each in command.list_commands(None)]
            waiting += [(f"{name} {each}".strip(), inner) for each, inner in found]
        else:
            paths = [each for each in command.params if "path" in str(each.type.name) and each.opts[0].startswith("-")]
            yield name, [max(each.opts, key=len) for each in paths]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small inputs of every command."""
    folder = tmp_path_factory.mktemp("no-room")
    problem = {**FEW, "training": {**FEW["training"], "tokens": 10**6, "schedule": "1f1b"}}
    trained = synthetic.problem(synthetic.MULTI_HEAD, dp=32, zero=1, batch=32, sequence=128)
    collective = {**COLLECTIVE, "seconds": 3e-5, "link": "nvlink4"}
    documents = {
        "problem.json": problem,
        "plan.json": nest.solve(problem).to_dict(),
        "decided.json": nest.evaluate({**MEASURED, "constraints": [], "fixed": {}}).to_dict(),
        "study.json": {"nest": 1, "base": "problem.json", "vary": {"training.global_batch": [8]}},
        "torus.json": {"torus": {"shape": [2, 2], "bandwidth": "10 GB/s", "latency": "1 us"}},
        "collectives.jsonl": collective,
        "run.json": trained,
    }
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document))
    runs = [synthetic.run(trained, seconds, family=group, group=group) for seconds, group in ((0.02, "a"), (0.04, "b"))]
    (folder / "runs.jsonl").write_text("\n".join(map(json.dumps, runs)))
    (folder / "run.log").write_text("".join(f"step: {step}  loss: 9.0  tps: 500,000\n" for step in range(1, 30)))
    (folder / "run.sh").write_text("torchrun --nproc-per-node 4 pretrain_gpt.py --pipeline-model-parallel-size 2")
    (folder / "ring.graphml").write_text((Path(str(files("nest_testing"))) / "data" / "ring.graphml").read_text())
    for words in (WRITING["recommend --curve"], WRITING["sweep --output"].replace("csv", "jsonl")):
        assert call(folder, words.replace("OUT", "curve" if "--curve" in words else "rows"))[0] == 0
    return folder


@pytest.fixture
def folder(inputs: Path, tmp_path: Path) -> Path:
    """A copy of it, to write to."""
    return shutil.copytree(inputs, tmp_path / "here")


def lasting(names: dict[str, str]) -> list[Any]:
    """Names as parameters, those of slow commands marked."""
    return [pytest.param(name, marks=pytest.mark.slow) if name.partition(" --")[0] in SLOW else name for name in names]


def call(folder: Path, text: str, script: str = "", place: str = "out", kept: str = "off") -> tuple[int, str, str]:
    """Exit code, results and errors of a command in `folder`, in a process of its own."""
    words = text.split()
    command = [
        sys.executable,
        *(["-c", script.replace("{arguments}", str(words))] if script else ["-m", "nest", *words]),
    ]
    beside = folder.parent / "streams"
    beside.mkdir(exist_ok=True)
    names = [str(beside / name) for name in (place, "errors")]
    code = processes.fork(command, [os.devnull, *names], cwd=folder, env=os.environ | {KEPT_IN: kept}, timeout=120)
    printed, errors = ("" if name.startswith("/dev") else Path(name).read_text() for name in names)
    for name in names:
        Path(name).unlink() if not name.startswith("/dev") else None
    assert "Traceback" not in errors, errors
    return code, printed, errors


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_command_and_every_file_written_is_tried() -> None:
    found = dict(commands())
    assert found.keys() == CALLS.keys()
    assert {f"{name} {option}" for name, options in found.items() for option in options if option not in READ} == {
        *WRITING
    }


@pytest.mark.longer
@pytest.mark.parametrize("command", lasting(CALLS))
def test_a_full_disk_behind_standard_output_is_told(command: str, folder: Path) -> None:
    code, _, errors = call(folder, f"{command} {CALLS[command]}", place="/dev/full")
    assert errors.splitlines()[-1] == "nest: standard output: No space left on device."
    assert code == 2


@pytest.mark.longer
@pytest.mark.parametrize("script", [UNREAD, CLOSED], ids=["unread", "closed"])
@pytest.mark.parametrize("command", lasting(CALLS))
def test_nobody_who_reads_is_no_error(command: str, script: str, folder: Path) -> None:
    assert call(folder, f"{command} {CALLS[command]}", script)[:2] == (0, "")


@pytest.mark.longer
@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_streams_that_the_shell_closes_take_no_file_s_place(closed: str, folder: Path) -> None:
    words = [sys.executable, "-m", "nest", "export", "plan.json", "--to", "dot", "--output", "out"]
    command = f"exec {' '.join(words)} {closed}"
    done = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    (file,) = (folder / "out").iterdir()
    assert file.read_text() == call(folder, "export plan.json --to dot")[1]


@pytest.mark.longer
@pytest.mark.parametrize("place", ["file/below", "/dev/full", "/sys/below", "limited"])
@pytest.mark.parametrize("option", lasting(WRITING))
def test_what_cannot_be_written_is_told_and_nothing_is_left(option: str, place: str, folder: Path) -> None:
    if place == "/dev/full" and "OUT." in WRITING[option]:
        pytest.skip("writes to a name of its own")
    (folder / "file").write_text("")
    before = contents(folder)
    words = WRITING[option].replace("OUT", "there" if place == "limited" else place)
    code, _, errors = call(folder, words, LIMITED if place == "limited" else "")
    assert code == 2, errors
    assert re.search(r"cannot write|there is no (such )?folder", errors.splitlines()[-1]), errors
    assert contents(folder) == before


@pytest.mark.longer
def test_a_folder_of_answers_that_cannot_be_written_to_is_one_line(folder: Path) -> None:
    (folder / "file").write_text("")
    for words in ("solve problem.json", "explain plan.json --only alternatives --jobs 2"):
        code, printed, errors = call(folder, words, kept=str(folder / "file" / "kept"))
        (line,) = (each for each in errors.splitlines() if each.startswith("nest: warning: "))
        assert line == f"nest: warning: NEST_CACHE: {folder}/file/kept: cannot cache the answer: Not a directory."
        assert call(folder, words)[:2] == (code, printed) == (0, printed)


@pytest.mark.longer
@pytest.mark.parametrize(
    "command", [name if name == "solve" else pytest.param(name, marks=pytest.mark.slow) for name in CALLS]
)
def test_an_interrupt_ends_a_command_with_a_sentence(command: str, folder: Path) -> None:
    before, random = contents(folder), Random(command)
    for most in (300, 3_000, 30_000, 300_000):
        script = PRESSED.replace("{after}", str(random.randrange(most // 10, most)))
        code, _, errors = call(folder, f"{command} {CALLS[command]}", script)
        assert code in (0, 1, 130), errors
        assert code != 130 or errors.splitlines()[-1] == "nest: stopped."
        assert not [name for name in contents(folder).keys() - before.keys() if ".nest-" in name]
        for name in contents(folder).keys() - before.keys():
            (folder / name).unlink()


def test_an_interrupt_while_python_ends_is_told(folder: Path) -> None:
    ending = "import threading\nthreading._register_atexit(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
    script = PRESSED.replace("{after}", "-1").replace("sys.setprofile(called)\n", ending)
    code, printed, errors = call(folder, "models", script)
    assert (code, errors) == (130, "nest: stopped.\n")
    assert printed == call(folder, "models")[1]
