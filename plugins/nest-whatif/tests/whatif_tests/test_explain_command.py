"""`nest explain` as a person calls it."""

import json
import os
from pathlib import Path

import pytest

import nest
from tests.command_line import call
from whatif_tests.test_explain import PROBLEM


@pytest.fixture
def plan(tmp_path: Path) -> str:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(nest.solve(PROBLEM).to_dict()))
    return str(path)


@pytest.mark.longer
def test_text_and_json(plan: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "explain", plan, "--only", "alternatives", "--only", "binding") == 0
    shown = capsys.readouterr()
    assert "Bottlenecks" in shown.out
    assert "Best alternatives" in shown.out
    assert "Sensitivity" not in shown.out
    assert shown.err == ""
    assert call(monkeypatch, "explain", plan, "--only", "alternatives", "--time-limit", "60", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["parts"] == ["alternatives"]
    assert {each["decision"] for each in told["alternatives"]} >= {"pp", "zero"}


@pytest.mark.longer
def test_a_plan_may_come_through_a_pipe(
    plan: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, into = os.pipe()
    with os.fdopen(into, "w") as stream:  # A plan is shorter than what a pipe holds.
        stream.write(Path(plan).read_text())
    assert call(monkeypatch, "explain", f"/dev/fd/{out}", "--only", "binding") == 0
    os.close(out)
    assert "Bottlenecks" in capsys.readouterr().out


@pytest.mark.longer
def test_an_infeasible_plan_is_explained_with_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(nest.solve({**PROBLEM, "constraints": ["pp == 3", "pp == 2"]}).to_dict()))
    assert call(monkeypatch, "explain", str(path), "--only", "constraints") == 1
    shown = capsys.readouterr().out
    assert shown.startswith("No feasible plan.")
    assert "Cost of restrictions" in shown
    assert "`pp == 3`  nothing" in shown


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--only", "costs"], "binding, constraints, pools, alternatives, flips"),
        (["--time-limit", "0"], "positive number"),
    ],
)
def test_what_cannot_be_asked_is_told(
    plan: str, arguments: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "explain", plan, *arguments) == 2
    assert told in capsys.readouterr().err
