"""How `nest solve` ends, and where it puts what was found, whatever the search."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve

from nest import api
from nest.errors import NoPlanYet
from nest.io import read_mapping_text
from nest.report.text.comparison import Entry
from nest.solve.effort import Deadline
from nest.spec import PlanDocument
from nest.testing import sample_plans
from nest_whatif import verbs
from tests.command_line import call

PROOF: dict[str, Any] = {
    "bound": 1.0, "better_batch_time": None, "version": "9.12", "models": 3, "pruned": 4, "cases": 5, "seconds": 1.0,
    "gap": None, "tolerance": 1e-6, "reason": "the time was up", "certificate": None, "free": None,
}  # fmt: skip


@pytest.fixture(scope="module")
def plan() -> PlanDocument:
    return sample_plans()[0]


@pytest.mark.parametrize(
    ("proof", "code"), [(None, 0), ("proved", 0), ("open", 1), ("refuted", 1)], ids=lambda each: str(each)
)
def test_a_plan_whose_proof_failed_is_no_success(
    plan: PlanDocument, proof: str | None, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    verification = None if proof is None else {**PROOF, "status": proof, "better_batch_time": 1.0}
    monkeypatch.setattr(api, "solve", lambda *_, **__: evolve(plan, verification=verification))
    assert call(monkeypatch, "solve", "problem.yaml", "--verify") == code


def test_the_best_plans_are_numbered_as_the_next_command_calls_them(
    plan: PlanDocument, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slower = evolve(plan, batch_time=(plan.batch_time or 0.0) * 1.01)
    monkeypatch.setattr(
        api, "shortlist", lambda *_, **__: (Entry(plan, 0.0, True, True), Entry(slower, 0.01, True, True))
    )
    assert call(monkeypatch, "solve", "problem.yaml", "--best", "2", "--output", str(tmp_path)) == 0
    found = [api.read_plan(tmp_path / f"plan-{place}.json").batch_time for place in (1, 2)]
    assert found == [plan.batch_time, slower.batch_time]
    assert f"nest explain {tmp_path / 'plan-1.json'}" in capsys.readouterr().out


def test_each_of_several_problems_has_the_time_that_is_given(
    plan: PlanDocument, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the second begins when the first is done."""
    limits: list[Deadline] = []

    def solve(*_: object, time_limit: Deadline, **__: object) -> PlanDocument:
        limits.append(time_limit)
        return plan

    monkeypatch.setattr(api, "solve", solve)
    assert call(monkeypatch, "solve", "one.yaml", "other.yaml", "--time-limit", "1h") == 0
    assert [each.seconds for each in limits] == [3600.0, 3600.0]
    assert limits[0] is not limits[1]


@pytest.mark.parametrize(("status", "code"), [("optimal", 0), ("infeasible", 1)])
def test_an_explanation_that_nothing_is_feasible_is_no_success(
    plan: PlanDocument, status: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = SimpleNamespace(plan=evolve(plan, status=status), to_dict=dict)
    monkeypatch.setattr(verbs, "explain", lambda *_, **__: found)
    assert call(monkeypatch, "explain", "plan.json", "--json") == code


@pytest.mark.parametrize(("stopped", "code"), [(True, 130), (False, 1)])
def test_who_stops_a_search_is_told_apart_from_time_being_up(
    stopped: bool, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def solve(*_: object, **__: object) -> PlanDocument:
        raise NoPlanYet("no plan yet.", stopped=stopped)

    monkeypatch.setattr(api, "solve", solve)
    assert call(monkeypatch, "solve", "problem.yaml") == code


def test_the_tokens_of_a_training_are_written_where_they_are_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--model", "gpt2", "--device", "h100", "--batch", "8", "--sequence", "512", "--print-problem")
    for more, tokens in ((("--tokens", "15T"), "15T"), ((), None)):
        assert call(monkeypatch, "solve", *words, *more) == 0
        written = read_mapping_text(capsys.readouterr().out, "problem.yaml")
        assert written["training"].get("tokens") == tokens
