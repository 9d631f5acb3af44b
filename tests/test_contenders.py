"""Plans of other memory risks: told where they are worth it, and only then; each is the best of its risk."""

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import nest
from nest import contenders
from nest.contenders import CAUTIOUS, DARING, GAIN, LOSS
from nest.spec import PlanDocument
from tests.test_api import SMALL


def problem(gigabytes: float, **training: Any) -> dict[str, Any]:
    asked = {**SMALL["training"], "schedule": ["1f1b"], **training}
    levels = SMALL["cluster"]["levels"]
    return {**SMALL, "training": asked, "cluster": {"device": "h100-sxm", "levels": levels, "memory": gigabytes * 1e9}}


def told(plan: PlanDocument) -> dict[float, float]:
    """Step times by memory risk."""
    return {each.memory_risk: each.batch_time for each in plan.other_risks}


@settings(max_examples=3)
@given(gigabytes=st.floats(1.0, 8.0), risk=st.sampled_from([0.2, 0.5, 0.7]))
def test_other_risks_are_told_where_a_search_of_their_own_finds_them_worth_it(gigabytes: float, risk: float) -> None:
    plan = nest.solve(problem(gigabytes, memory_risk=risk))
    assume(plan.status == "optimal")
    assert plan.batch_time is not None
    assert plan.fit_probability is not None
    daring = nest.solve(problem(gigabytes, memory_risk=DARING)).batch_time
    cautious = nest.solve(problem(gigabytes, memory_risk=CAUTIOUS)).batch_time
    assert daring is not None
    expected = {}
    if daring < plan.batch_time * (1 - GAIN):
        expected[DARING] = daring
    if plan.fit_probability < 1 - CAUTIOUS and cautious is not None and cautious < plan.batch_time * (1 + LOSS):
        expected[CAUTIOUS] = cautious
    assert told(plan) == pytest.approx(expected, rel=1e-12)
    for each in plan.other_risks:
        assert each.slower_by == pytest.approx(each.batch_time / plan.batch_time - 1)
        assert each.fit_probability >= 1 - each.memory_risk - 1e-9
    report = nest.check(plan)
    assert report.ok, report.disagreements


@pytest.fixture(scope="module")
def daring() -> dict[str, Any]:
    """A plan that tells of a faster one at a higher risk."""
    tried = (nest.solve(problem(gigabytes)) for gigabytes in (1.6, 2.0, 2.4, 3.0, 3.6, 4.4))
    return next(plan for plan in tried if DARING in told(plan)).to_dict()


@pytest.mark.parametrize(
    ("key", "value"), [("batch_time", 1e-3), ("slower_by", -0.9), ("fit_probability", 0.99), ("memory_risk", 1.5)]
)
def test_a_changed_figure_of_another_risk_is_noticed(daring: dict[str, Any], key: str, value: float) -> None:
    changed = {**daring, "other_risks": [{**daring["other_risks"][0], key: value}]}
    report = nest.check(changed)
    assert any("other_risks[0]" in each for each in report.disagreements)


def test_a_plan_that_the_stated_risk_does_not_allow_is_noticed(daring: dict[str, Any]) -> None:
    changed = {**daring, "other_risks": [{**daring["other_risks"][0], "memory_risk": CAUTIOUS}]}
    report = nest.check(changed)
    assert "other_risks[0] needs more memory than a device has." in report.disagreements


def test_nothing_is_searched_where_a_margin_or_a_profile_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contenders, "FEW", -1)
    assert nest.solve(problem(2.0)).other_risks == ()
    monkeypatch.undo()
    assert nest.solve(problem(2.0, memory_margin=0.1)).other_risks == ()
