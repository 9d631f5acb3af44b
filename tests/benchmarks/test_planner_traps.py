"""The public benchmark's problems: files as their script writes them, optima as brute force and nest find them."""

from pathlib import Path

import pytest

import nest
from benchmarks.planners.generate import files, proven
from benchmarks.planners.judge import Judge, Row
from benchmarks.planners.run import planners, rows
from benchmarks.planners.tracks import PROBLEMS, TRACKS, Task, tasks
from benchmarks.planners.traps import traps

CLEARLY = 1.1
"""Ratio of a baseline that fell into a trap."""

FALLS = {
    "powers": "galvatron",
    "even": "manual",
    "idle": "phaze",
    "gap": "nest-paper",
    "order": "piper",
    "head": "galvatron",
    "recompute": "alpa",
    "partial": "piper",
    "skip": "piper",
    "network": "phaze",
    "branch": "nest-paper",
}
"""A baseline without random numbers that falls into each trap."""

TASKS = [pytest.param(task, id=f"{track} {task.name}") for track in TRACKS for task in tasks(track)]


def test_the_files_are_those_that_their_script_writes() -> None:
    stated = {task.name: task.optimum for task in tasks("optimum")}
    written = files(stated)
    assert {path: (PROBLEMS / path).read_text(encoding="utf-8") for path in written} == written
    found = sorted(str(path.relative_to(PROBLEMS)) for path in PROBLEMS.glob("**/*.*"))
    assert found == sorted(written)


@pytest.mark.longer
@pytest.mark.parametrize("task", TASKS)
def test_programs_that_share_no_code_with_nest_find_the_optimum(task: Task) -> None:
    assert proven(task.problem) == pytest.approx(task.optimum, rel=1e-12)


@pytest.mark.longer
@pytest.mark.parametrize("task", TASKS)
def test_nest_finds_and_proves_the_optimum(task: Task) -> None:
    (row,) = rows(planners(["nest"], (), 60), [task])
    assert row.ratio == pytest.approx(1, rel=0, abs=1e-9)
    assert nest.solve(task.problem).status == "optimal"


def test_every_trap_has_a_baseline_that_falls() -> None:
    assert list(FALLS) == [trap.name for trap in traps()]


@pytest.mark.parametrize(("trap", "baseline"), FALLS.items())
def test_a_trap_defeats_a_baseline(trap: str, baseline: str) -> None:
    (row,) = rows(planners([baseline], (), 60), [each for each in tasks("traps") if each.name == trap])
    assert row.ratio is not None
    assert row.ratio > CLEARLY


def test_a_plan_faster_than_the_optimum_refutes_it() -> None:
    task = tasks("traps")[0]
    wrong = Task(task.name, task.problem, task.optimum * 1.01)
    found = [row.refutes for each in (task, wrong) for row in rows(planners(["nest"], (), 60), [each])]
    assert found == [False, True]
    assert not Judge(task).failed("nobody", "no reason").refutes
    assert not Row("nobody", task.name, 1.0, 1.5).refutes


def test_the_page_tells_of_every_trap_what_the_script_says() -> None:
    page = (Path(__file__).resolve().parents[2] / "benchmarks/planners/README.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    told = [f"| `{trap.name}` | {trap.restriction} | {trap.argument} |" for trap in traps()]
    assert [row for row in rows if row.count("|") == 4][: len(told)] == told
