"""`nest frontier` as a person calls it."""

import json
from pathlib import Path
from typing import Any

import pytest

from nest import api
from nest_whatif.commands.frontier import _proof
from studies_tests.test_sweep import PROBLEM
from tests.command_line import call


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    training = {**PROBLEM["training"], "tokens": 10**9, "micro_batch": [1]}
    problem: dict[str, Any] = {
        **PROBLEM,
        "search": {"within": 0},
        "training": training,
        "cluster": {**PROBLEM["cluster"], "price": 2},
    }
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    path.write_text(json.dumps(api.solve(problem).to_dict()))
    return path


@pytest.mark.longer
def test_all_plans_are_listed_with_their_proof(
    plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "frontier", str(plan), "--memory-step", "0.2") == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["step", "time", "devices", "memory", "cost", "plan"]
    assert call(monkeypatch, "frontier", str(plan), "--memory-step", "0.2", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    front = [step for step in found["steps"] if step["efficient"]]
    assert len(shown) == 2 + len(front) + 2
    assert f"these {len(front)} plans are the Pareto front, within 25.0 % of memory." in " ".join(shown[-2:])
    best = json.loads(plan.read_text())
    (own,) = (step for step in front if step["batch_time"] == best["batch_time"])
    assert own["cost"] == pytest.approx(best["summary"]["training"]["cost"], rel=1e-12)


@pytest.mark.longer
def test_a_step_that_is_no_share_is_bad_input(
    plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "frontier", str(plan), "--memory-step", "1") == 2
    assert "memory_step must be at least 0 and below 1" in capsys.readouterr().err


def test_what_plans_between_two_steps_may_save_is_a_share_of_the_smaller_memory() -> None:
    """A plan within a step of 20 % needs at least 0.8 of what is listed, which is 25 % more than that."""
    assert (
        _proof(5, 3, 0.2, proved=True)
        == "Proved in 5 searches: these 3 plans are the Pareto front, within 25.0 % of memory."
    )
    assert "memory" not in _proof(5, 3, 0.0, proved=True)
    assert "Proved" not in _proof(5, 3, 0.2, proved=False)
