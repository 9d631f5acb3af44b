"""Launches of the plans of a set until one runs, and the plan taken."""

import pytest

from benchmarks.fidelity.choices import Launched, as_shortlist, by_time, means, report, taken
from nest.catalogue import TimeSpread

PLANS = (
    Launched(9.0, 0.55, None),
    Launched(10.0, 0.95, 12.0),
    Launched(10.5, 0.9, 11.0),
    Launched(11.0, 0.9, 13.0),
    Launched(12.0, 0.99, 10.0),
    Launched(8.0, 0.3, 9.0),
)

USUAL = TimeSpread(between=0.15, within=0.09, apart=0.1)


def test_launches_count_until_plans_run() -> None:
    found = taken(PLANS, USUAL, by_time)
    assert found is not None
    assert (found.launches, found.in_all) == (2, 4)
    assert (found.first, found.best) == (pytest.approx(12 / 9 - 1), pytest.approx(11 / 9 - 1))


def test_the_shortlist_stops_and_counts_failed_launches() -> None:
    found = taken(PLANS, USUAL, as_shortlist)
    assert found is not None
    assert found.launches == 1
    assert (found.in_all, found.best) == (2, pytest.approx(12 / 9 - 1))
    assert taken([PLANS[1], Launched(14.0, 1.0, 9.0)], USUAL, as_shortlist).in_all == 1  # type: ignore[union-attr]


def test_a_time_tells_a_fact_and_with_it_the_next_launch() -> None:
    plans = [
        Launched(10.0, 1.0, 14.0, {"overlap.data": 14.0}),
        Launched(10.3, 1.0, 14.4, {"overlap.data": 14.4}),
        Launched(10.5, 1.0, 10.6, {"overlap.data": 10.6}),
    ]
    assert [each.measured for each in as_shortlist(plans, USUAL)[:2]] == [14.0, 10.6]


def test_nothing_likely_to_fit_is_no_choice() -> None:
    assert taken([Launched(8.0, 0.3, 9.0)], USUAL, by_time) is None
    assert [line.split()[-6] for line in report(means([(PLANS, USUAL)]))[1:]] == ["33.3%", "33.3%"]
