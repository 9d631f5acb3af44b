"""The adapter protocol: plans in their minimal form, and programs that fail in every way there is."""

import json
import os
import shlex
import sys
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import nest
from benchmarks.planners import __main__ as command
from benchmarks.planners.judge import Row
from benchmarks.planners.programs import LARGEST_PLAN
from benchmarks.planners.run import planners, rows
from benchmarks.planners.table import summaries
from benchmarks.planners.tracks import Task, tasks

EVEN = next(task for task in tasks("traps") if task.name == "even")
NETWORK = next(task for task in tasks("traps") if task.name == "network")


def program(folder: Path, text: str) -> str:
    """The command of a Python program."""
    file = folder / "program.py"
    file.write_text(text)
    return shlex.join([sys.executable, "-I", "-S", str(file)])


def writing(folder: Path, plan: Any) -> str:
    """The command of a program that writes a plan."""
    return program(folder, f"print({json.dumps(plan)!r})")


def answered(command: str, task: Task = EVEN, limit: float = 60) -> Row:
    """The row of a program on a problem."""
    found = planners(["nest"], [f"mine={command}"], limit)
    (row,) = rows({"mine": found["mine"]}, [task])
    return row


def stage(layers: str, first: int, **other: Any) -> dict[str, Any]:
    names = [f"layer{digit}" for digit in layers]
    return {"layers": names, "candidate": "one", "recompute": "none", "zero": 0, "devices": [first, 1], **other}


def plan(*stages: dict[str, Any], **other: Any) -> dict[str, Any]:
    return {"data_parallel": 1, "rank_order": "pp-inner", "schedule": "1f1b", "stages": list(stages), **other}


def test_decisions_alone_are_a_plan(tmp_path: Path) -> None:
    row = answered(writing(tmp_path, plan(stage("01", 0), stage("23", 1))))
    assert (row.planner, row.problem, row.reason) == ("mine", "even", None)
    assert (row.batch_time, row.ratio) == (108.0, pytest.approx(108 / 84))


def test_the_plan_that_the_page_shows_is_the_best_of_a_trap(tmp_path: Path) -> None:
    page = Path(__file__).resolve().parents[4] / "docs/reference/planner-adapters.md"
    shown = page.read_text(encoding="utf-8").partition("```json\n")[2].partition("```")[0]
    assert answered(writing(tmp_path, json.loads(shown))).ratio == 1


def test_a_plan_of_nest_is_one_whatever_its_figures_say(tmp_path: Path) -> None:
    found = nest.solve(EVEN.problem).to_dict()
    assert answered(writing(tmp_path, found)).ratio == 1
    found["batch_time"] = found["stages"][0]["time"] = 1e-9
    assert answered(writing(tmp_path, found)).ratio == 1


def test_on_a_network_devices_may_be_named(tmp_path: Path) -> None:
    stages = [stage(str(index), index) for index in range(4)]
    assert answered(writing(tmp_path, plan(*stages)), NETWORK).ratio == pytest.approx(68 / 47)
    placement = {"replicas": [[["1"], ["0"], ["2"], ["3"]]]}
    assert answered(writing(tmp_path, plan(*stages, placement=placement)), NETWORK).ratio == 1


def test_a_program_is_given_the_problem_and_its_time(tmp_path: Path) -> None:
    text = f"""
import json, os, sys
problem = json.load(sys.stdin)
assert os.environ["PLANNER_TIME_LIMIT"] == "30"
assert problem == json.loads({json.dumps(EVEN.problem)!r})
print({json.dumps(plan(stage("0", 0), stage("123", 1)))!r})
"""
    assert answered(program(tmp_path, text), limit=30).ratio == 1


CHILD = "import sys, time; told = open(sys.argv[1], 'w'); time.sleep(5); told.write('it still runs')"
"""What outlives a program that is ended alone: it holds a pipe open, and says so in the end."""

FAULTS = {
    "raise SystemExit(3)": "it ended with exit code 3: nothing on standard error",
    "import sys\nprint('lost\\nno licence', file=sys.stderr)\nsys.exit(1)": "it ended with exit code 1: no licence",
    "import os\nos.kill(os.getpid(), 9)": "it ended with signal 9: nothing on standard error",
    "print('FAIL: too many ideals')": "it wrote no JSON document.",
    "pass": "it wrote no JSON document.",
    "import sys\nsys.stdout.buffer.write(b'\\xff\\xfe{')": "it wrote no JSON document.",
    "print('[' * 100000)": "it wrote no JSON document.",
    "print('[1]')": "it wrote JSON, but no object.",
    f"print(' ' * {LARGEST_PLAN}, 1)": f"it wrote more than {LARGEST_PLAN} bytes.",
    "print('{}')": "its plan lacks data_parallel.",
    'print(\'{"status": "infeasible"}\')': "it says that no plan fits.",
    'print(\'{"status": "infeasible", "diagnosis": "too large."}\')': "too large.",
}


@pytest.mark.parametrize(("text", "reason"), FAULTS.items())
def test_a_program_that_fails_is_a_row(tmp_path: Path, text: str, reason: str) -> None:
    row = answered(program(tmp_path, text))
    assert (row.batch_time, row.ratio, row.reason) == (None, None, reason)


WRONG = {
    "a layer twice": (plan(stage("01", 0), stage("123", 1)), "it is no plan of the problem"),
    "a layer left out": (plan(stage("0", 0), stage("12", 1)), "it is no plan of the problem"),
    "against the edges": (plan(stage("23", 0), stage("01", 1)), "it is no plan of the problem"),
    "one device twice": (plan(stage("01", 0), stage("23", 0)), "it is no plan of the problem"),
    "a device too many": (plan(stage("01", 1), stage("23", 2)), "it is no plan of the problem"),
    "another batch": (plan(stage("0123", 0), data_parallel=2), "it is no plan of the problem"),
    "another ZeRO": (plan(stage("01", 0, zero=1), stage("23", 1, zero=1)), "it is no plan of the problem"),
    "another schedule": (plan(stage("01", 0), stage("23", 1), schedule="gpipe"), "it is no plan of the problem"),
    "no such layer": (plan(stage("09", 0)), "its plan cannot be read: stages[0].layers names 'layer9'"),
    "no such candidate": (plan(stage("0123", 0, candidate="two")), "its plan cannot be read: stages[0].candidate"),
    "no such mode": (plan(stage("0123", 0, recompute="all")), "its plan cannot be read: stages[0].recompute"),
    "an unknown key": (plan(stage("0123", 0, colour=1)), "its plan cannot be read: stages[0].colour"),
    "no number": (plan(stage("0123", 0), data_parallel="many"), "its plan cannot be read: data_parallel"),
    "devices of another width": (
        plan(stage("0123", 0, devices=[0, 2])),
        "stages[0].devices has 2 devices; 'one' has 1.",
    ),
    "no list": (plan(stage("0123", 0), stages=7), "stages is no list of stages."),
    "no stage": (plan(), "its plan cannot be read"),
}


@pytest.mark.parametrize(("wrong", "reason"), WRONG.values(), ids=WRONG)
def test_what_is_no_plan_of_the_problem_is_a_row(tmp_path: Path, wrong: dict[str, Any], reason: str) -> None:
    row = answered(writing(tmp_path, wrong))
    assert row.ratio is None
    assert str(row.reason).startswith(reason)


def test_a_plan_that_does_not_fit_is_a_row(tmp_path: Path) -> None:
    task = next(each for each in tasks("traps") if each.name == "recompute")
    row = answered(writing(tmp_path, plan(stage("0", 0), stage("1", 1))), task)
    assert row.reason == "its plan does not fit: 1 GiB too much."


def test_a_program_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    child = [sys.executable, "-c", CHILD, str(pipe)]
    given = program(tmp_path, f"import subprocess, time\nsubprocess.Popen({child!r})\ntime.sleep(600)\n")
    assert answered(given, limit=0.5).reason == "it took more than 0.5 s."
    os.set_blocking(read, True)  # What is read ends when nobody holds the pipe any more.
    with os.fdopen(read) as told:
        assert told.read() == ""


def test_a_program_that_cannot_be_started_is_a_row() -> None:
    for wrong in ("/no/such/program", "'", ""):
        assert str(answered(wrong).reason).startswith("it cannot be started"), wrong


def test_a_planner_that_raises_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("nest_planners.manual.Manual.plan", broken)
    row, other = rows(planners(["manual", "nest"], (), 60), [EVEN])
    assert row.reason == "it failed: ZeroDivisionError: division by zero"
    assert other.ratio == 1


@pytest.mark.longer
def test_planners_take_options() -> None:
    chosen = planners(["mcmc:evaluations=1", "mcmc:evaluations=300", "nest"], (), 60)
    few, many, ours = rows(chosen, [EVEN])
    assert [row.planner for row in (few, many, ours)] == list(chosen)
    assert few.ratio is not None
    assert many.ratio is not None
    assert few.ratio > many.ratio == 1
    assert ours.ratio == 1


@pytest.mark.longer
def test_a_planner_that_takes_too_long_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nest_planners.manual.Manual.plan", lambda *_: Event().wait(30))
    row, other = rows(planners(["manual", "nest"], (), 0.5), [EVEN])
    assert row.reason == "It timed out after 0.5 s."
    assert other.ratio == 1


def test_the_mean_is_geometric_and_of_problems_with_a_plan() -> None:
    made = [Row("a", "x", 1.0, 2.0), Row("a", "y", 1.0, 8.0), Row("a", "z", reason="none"), Row("b", "x", reason="-")]
    assert summaries(made) == [
        {"planner": "a", "mean": pytest.approx(4), "worst": 8.0, "failures": 1},
        {"planner": "b", "mean": None, "worst": None, "failures": 1},
    ]


def test_a_plan_faster_than_the_optimum_is_told_by_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "tasks", lambda _: [Task("even", EVEN.problem, 90.0)])
    assert command.main(["--track", "traps", "--planner", "nest"]) == 1
    assert "nest, even: faster than the optimum" in capsys.readouterr().err


@pytest.mark.parametrize(
    "given",
    [
        ["--planner", "nobody"],
        ["--planner", "mcmc:colour=1"],
        ["--track", "other"],
        ["--time-limit", "0"],
        ["--time-limit", "x"],
    ],
)
def test_bad_usage_is_refused(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(given)
    assert ended.value.code == 2
    assert "Traceback" not in capsys.readouterr().err
