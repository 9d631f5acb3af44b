"""Mutated inputs end in an answer or in plain sentences; `python -m tests.mutated_inputs` makes any number of them."""

import pytest

from nest import api
from nest.cli.app import BUNDLED, MODULES
from nest.hooks.bundled import bundled_entries
from tests.mutated_inputs.cases import Case, call, draw
from tests.mutated_inputs.commands import COMMANDS
from tests.mutated_inputs.inputs import inputs


@pytest.fixture(autouse=True)
def _signals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


@pytest.mark.longer
def test_some_mutated_inputs_are_answered_or_refused() -> None:
    assert [found.fault for found in (call(draw(17, number)) for number in range(30)) if found.fault] == []


def test_what_goes_wrong_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from nest.errors import InternalError

    case = Case("check", ("check", "plan.json"), {"plan.json": b"{}"})
    assert (call(case).code, call(case).fault) == (2, None)

    def broken(*_: object, **__: object) -> None:
        raise KeyError("stages")

    monkeypatch.setattr(api, "check", broken)
    assert "KeyError: 'stages'" in str(call(case).fault)

    def wrong(*_: object, **__: object) -> None:
        raise InternalError("two parts disagree.")

    monkeypatch.setattr(api, "check", wrong)
    assert "internal error" in str(call(case).fault)


def test_every_command_is_called() -> None:
    assert {command.words[0] for command in COMMANDS} == {*MODULES, *bundled_entries(BUNDLED)}


@pytest.mark.longer
def test_plans_of_all_kinds_are_mutated() -> None:
    plans = [plan for _, plan in inputs()["plan"]]
    clusters = [plan["problem"]["cluster"] for plan in plans]
    assert {plan["status"] for plan in plans} == {"optimal", "feasible", "infeasible"}
    assert {plan["schedule"] for plan in plans} > {"1f1b", "interleaved", "zb-v", "dualpipe-v"}
    mixed = [len({stage["candidate"] for stage in plan["stages"]}) > 1 for plan in plans]
    assert {"pools" in each for each, both in zip(clusters, mixed, strict=True) if both} == {True, False}
    assert any("topology" in each and plan["chunks"] > 1 for each, plan in zip(clusters, plans, strict=True))
    assert {"verification", "placement", "safer"} <= {key for plan in plans for key in plan if plan[key]}
