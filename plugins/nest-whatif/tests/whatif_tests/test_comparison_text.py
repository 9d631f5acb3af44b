"""The table of a comparison: what it claims of our plan."""

from typing import Any

import pytest
from attrs import evolve

import nest
from nest_whatif.text.comparison import comparison_text
from planners_tests.instances import problem


def told(**ours: Any) -> list[str]:
    found = nest.compare(problem(1e12), planners=["phaze", "manual"])
    return comparison_text(evolve(found, ours=evolve(found.ours, **ours)).to_dict()).splitlines()


def test_an_optimal_plan_is_called_the_fastest() -> None:
    assert told()[-1] == "Optimal plan: no fitting plan in nest's search space is faster."


@pytest.mark.longer
def test_the_simplest_plan_may_be_slower_than_others_without_a_search_that_was_stopped() -> None:
    found = nest.compare(problem(1e12), planners=["phaze"])
    lines = told(status="near-optimal", lower_bound=0.01, batch_time=found.ours.batch_time * 1.005)
    assert "Near-optimal plan: no plan in nest's search space takes less than 10 ms." in lines
    assert not [line for line in lines if "stopped" in line]


@pytest.mark.longer
def test_a_search_that_was_stopped_claims_its_bound_only() -> None:
    lines = told(status="feasible", lower_bound=0.01)
    assert lines[-1] == "Best plan found: no plan in nest's search space takes less than 10 ms."
