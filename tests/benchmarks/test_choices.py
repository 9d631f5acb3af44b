"""Launches of the plans of a set until one runs, and the plan taken."""

import pytest

from benchmarks.fidelity.choices import Launched, report, taken
from nest_calibrate.shortlist import worth

PLANS = (
    Launched(9.0, 0.55, None),
    Launched(10.0, 0.95, 12.0),
    Launched(10.5, 0.9, 11.0),
    Launched(11.0, 0.9, 13.0),
    Launched(12.0, 0.99, 10.0),
    Launched(8.0, 0.3, 9.0),
)


def test_launches_count_until_plans_run() -> None:
    found = taken(PLANS, lambda seconds, _: seconds)
    assert found is not None
    assert (found.launches, found.in_all) == (2, 4)
    assert (found.first, found.best) == (pytest.approx(12 / 9 - 1), pytest.approx(11 / 9 - 1))


def test_plans_that_may_fail_come_later() -> None:
    found = taken(PLANS, worth)
    assert found is not None
    assert found.launches == 1
    assert found.in_all == 4


def test_nothing_likely_to_fit_is_no_choice() -> None:
    assert taken([Launched(8.0, 0.3, 9.0)], worth) is None
    assert [line.split()[-5] for line in report([PLANS])[1:]] == ["33.3%", "33.3%"]
