"""Plan files of which a part is missing or of another type: every command says what is wrong, or does without it."""

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nest
from nest.cli import app
from nest.cli.output import run
from tests.test_any_problem import MEASURED

MISSING: Any = object()
INSTEAD = (MISSING, None, 5, -1.5, "x", [], {}, True, [1], {"a": 1})
SEARCHES = ("alternatives", "frontier", "sensitivity")
COMMANDS: dict[str, tuple[str, ...]] = {
    "check": (),
    "explain": ("--only", "binding"),
    "report": ("--output", "page.html", *(f"--without={part}" for part in SEARCHES)),
    "export": ("--to", "dot"),
    "simulate": (),
    "frontier": ("--time-limit", "0.01"),
    "verify": ("--time-limit", "0.01"),
    "compare": ("problem.json", "--planner", "manual", "--plan"),
    "solve": (),
}


@pytest.fixture(scope="module")
def written() -> dict[str, Any]:
    return nest.solve(MEASURED).to_dict()


def damaged(plan: Any, deep: int, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Each key and index down to a depth, with what stands there instead."""
    for key, value in plan.items() if isinstance(plan, dict) else enumerate(plan[:2]) if isinstance(plan, list) else ():
        yield from (((*path, key), instead) for instead in INSTEAD)
        if deep > 1:
            yield from damaged(value, deep - 1, (*path, key))


def code_of(command: str, plan: Any, path: tuple[Any, ...], instead: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    changed = copy.deepcopy(plan)
    within = changed
    for key in path[:-1]:
        within = within[key]
    if instead is MISSING:
        del within[path[-1]]
    else:
        within[path[-1]] = instead
    Path("plan.json").write_text(json.dumps(changed))
    options = COMMANDS[command]
    words = [command, *options, "plan.json"] if command == "compare" else [command, "plan.json", *options]
    monkeypatch.setattr("sys.argv", ["nest", *words])
    return run(app._call)


def try_all(command: str, plan: Any, cases: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    Path("problem.json").write_text(json.dumps(MEASURED))
    for path, instead in cases:
        code = code_of(command, plan, path, instead, monkeypatch)
        assert code in (0, 1, 2), (path, instead)


@pytest.mark.longer
@pytest.mark.parametrize("command", COMMANDS)
def test_a_damaged_plan_is_refused_or_done_without(
    command: str, written: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = random.Random(56).sample(list(damaged(written, 3)), 25)
    try_all(command, written, cases, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_damaged_plan_is_refused_or_done_without(
    command: str, written: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try_all(command, written, damaged(written, 3), tmp_path, monkeypatch)
