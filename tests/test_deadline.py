"""Searches that end early, at every moment: what they say stays true."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nest
from nest import api
from nest.api import shortlist
from nest.errors import NoPlanYet
from nest.solve.effort import FEW, Deadline, spread
from nest.spec import PlanDocument

OPEN: dict[str, Any] = {
    "nest": 1,
    "model": {"transformer": {"layers": 2, "hidden": 2048, "ffn": 8192, "heads": 16, "vocab": 1024}},
    "training": {"global_batch": 64, "schedule": "1f1b", "sequence_length": 256},
    "cluster": {
        "device": "h100-sxm",
        "levels": [{"fanout": 8, "link": "nvlink4"}, {"fanout": 4, "link": "infiniband-ndr"}],
    },
    "search": {"target": "none"},
}
"""More candidates than are priced however late it is."""

FULL: dict[str, Any] = {**OPEN, "cluster": {**OPEN["cluster"], "memory": 1.6e9}}
"""The same where memory is scarce, so that not every candidate has a plan."""

PROBLEMS = {"open": OPEN, "full": FULL}


@cache
def best_of(name: str) -> PlanDocument:
    """The best plan of a problem; searched when it is first asked for, not when tests are collected."""
    return nest.solve(PROBLEMS[name])


class Counted(Deadline):
    """Its clock moves on by a second whenever somebody looks at it."""

    def __init__(self, seconds: float, patience: float) -> None:
        super().__init__(seconds, patience)
        self.looks = 0

    @property
    def left(self) -> float:
        self.looks += 1
        return (self.seconds or 0.0) - self.looks


@cache
def unstopped(name: str) -> tuple[PlanDocument, int]:
    """The plan of a search whose time is never up, and how often it looks at the clock."""
    unlimited = Counted(1e9, 0.0)
    return api.solve(PROBLEMS[name], time_limit=unlimited), unlimited.looks


def looks(name: str) -> int:
    return unstopped(name)[1]


def candidates(plan: PlanDocument) -> int:
    found = (plan.statistics or {})["candidates"]
    assert isinstance(found, int)
    return found


@pytest.mark.longer
@settings(deadline=None, max_examples=3)
@given(st.sampled_from(tuple(PROBLEMS)), st.floats(0.0, 1.2), st.floats(0.0, 0.5))
def test_whenever_time_is_up_the_bound_is_below_the_best_plan(name: str, share: float, patience: float) -> None:
    """A plan ended early holds and has a sound bound; no problem with a plan is called infeasible."""
    best, most = best_of(name), looks(name)
    assert best.batch_time is not None
    try:
        plan = api.solve(PROBLEMS[name], time_limit=Counted(share * most, patience * most))
    except NoPlanYet:
        return
    assert plan.status in ("optimal", "feasible")
    assert plan.batch_time is not None
    assert plan.lower_bound is not None
    assert plan.lower_bound <= best.batch_time * (1 + 1e-9) <= plan.batch_time * (1 + 2e-9)
    assert plan.status == "feasible" or plan.batch_time <= best.batch_time * (1 + 1e-9)
    assert nest.check(plan).ok


@pytest.mark.longer
def test_these_problems_have_candidates_to_leave_out() -> None:
    for name in PROBLEMS:
        assert candidates(best_of(name)) > FEW * 3 // 2
    plan = api.solve(OPEN, time_limit=Counted(looks("open") / 10, 1e9))
    assert candidates(plan) < candidates(best_of("open"))
    assert (plan.status, plan.lower_bound) == ("feasible", 0.0)


class PricedShortly(Deadline):
    """Leaves no time for more than a few candidates, and all the time for their search and its proof."""

    def beyond(self, share: float, of: float | None = None) -> bool:
        return True


@pytest.mark.parametrize("deadline", [lambda: Counted(0.1 * looks("open"), 1e9), PricedShortly])
def test_what_was_not_priced_is_not_proved(deadline: Callable[[], Deadline]) -> None:
    """CP-SAT sees the same candidates as the search, so that it must not call their best plan the best."""
    plan = api.solve(OPEN, time_limit=deadline(), verify=True)
    assert plan.status == "feasible"
    assert plan.verification is not None
    assert plan.verification["status"] == "open"


def test_a_problem_without_a_plan_is_not_called_so_when_candidates_are_left_out() -> None:
    starved = {**OPEN, "cluster": {**OPEN["cluster"], "memory": 0.5e9}}
    assert nest.solve(starved).status == "infeasible"
    with pytest.raises(NoPlanYet, match="give the search more time"):
        api.solve(starved, time_limit=PricedShortly(1e9))


@pytest.mark.longer
def test_the_best_plans_so_far_are_told() -> None:
    entries = shortlist(OPEN, 5, time_limit=Counted(looks("open") * 1.7, 0.0))
    assert 1 <= len(entries) < 5
    assert entries[0].plan.batch_time == pytest.approx(best_of("open").lower_bound, rel=1e-9)


def test_who_stops_a_search_is_not_told_of_a_limit() -> None:
    deadline = Deadline()
    assert not deadline.passed
    deadline.stop()
    assert deadline.passed
    assert not deadline.over
    assert str(deadline.no_plan_yet()) == "stopped before any plan was found."


@given(st.integers(1, 300), st.integers(1, 300))
def test_few_of_many_are_spread(of: int, wanted: int) -> None:
    found = list(spread(of, min(of, wanted)))
    assert found == sorted(set(found))
    assert found[0] == 0
    assert found[-1] < of
    gaps = {after - before for before, after in zip(found, [*found[1:], of], strict=True)}
    assert max(gaps) - min(gaps) <= 1
