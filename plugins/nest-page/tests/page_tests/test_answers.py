"""The parts that take searches: what the page says is what the questions answer."""

from typing import Any

import pytest

import nest
from nest import api
from nest.errors import InputError
from nest.spec import PlanDocument
from nest.units import percent
from nest.whatif.solver import Solver
from nest_page.page_of_plan import PARTS
from nest_whatif.pareto_front import pareto_front
from nest_whatif.sensitivity import responses
from nest_whatif.text.explanation import alternative_rows
from page_tests.plans import LEVELS, problem, quick
from page_tests.reading import Page
from tests.simulate.uniform_plans import uniform_plan

CHOICES = "Best alternatives"


@pytest.fixture(scope="module")
def plan() -> PlanDocument:
    return uniform_plan(3, "1f1b")


def test_the_frontier_is_on_the_page(plan: PlanDocument) -> None:
    told: list[tuple[str, int]] = []
    text = nest.report_page(
        plan, without=["alternatives", "sensitivity"], progress=lambda asking, done, _: told.append((asking, done))
    )
    table = Page(text).table("The fastest plans within limits")
    points = pareto_front(plan, Solver())
    assert table.values("memory") == [point.memory for point in points]
    assert table.values("step time") == [point.batch_time for point in points if point.batch_time is not None]
    assert [done for _, done in told] == list(range(len(told)))
    assert told


@pytest.mark.longer
def test_the_sensitivity_is_on_the_page(plan: PlanDocument) -> None:
    table = Page(nest.report_page(plan, without=["alternatives", "frontier"])).table(
        "Step time with one number changed"
    )
    answers = responses(plan, Solver())
    assert table.values("this plan") == [each.kept for each in answers if each.kept is not None]
    assert table.values("best plan") == [each.best for each in answers if each.best is not None]


@pytest.fixture(scope="module")
def searched(plan: PlanDocument) -> PlanDocument:
    """The best plan of the same problem."""
    return api.solve({**plan.problem, "fixed": {}})


@pytest.mark.longer
def test_the_best_plan_without_each_choice_is_on_the_page(searched: PlanDocument) -> None:
    table = Page(nest.report_page(searched, without=["frontier", "sensitivity"])).table(CHOICES)
    told = nest.explain(searched, only=["alternatives"]).to_dict()
    rows = [[cell.text for cell in row] for row in table.rows]
    assert rows[:-1] == [list(row) for row in alternative_rows(told["alternatives"], told["decided"])]
    (usual,) = nest.compare(searched.problem, planners=["manual"]).others
    assert rows[-1][0] == "rules of thumb"
    assert usual.batch_time is not None
    slower = usual.batch_time / (searched.batch_time or 1.0) - 1
    assert rows[-1][1] == ("as fast" if slower < 1e-9 else percent(slower))


def test_a_plan_that_was_given_is_not_said_to_be_the_best(plan: PlanDocument) -> None:
    page = Page(nest.report_page(plan, without=["frontier", "sensitivity"]))
    assert CHOICES not in {table.caption for table in page.tables}


FEW: dict[str, Any] = {
    "strategies": {"tp": [1, 2], "sp": [False], "cp": [1]},
    "training": {"global_batch": 32, "sequence_length": 2048, "micro_batch": [1], "schedule": "1f1b"},
}
"""Few combinations: each question about a problem without a plan is a search to the end."""


@pytest.mark.longer
def test_what_would_let_a_plan_fit_is_on_the_page() -> None:
    plan = api.solve(problem(cluster={"device": "h100-sxm", "levels": LEVELS, "memory": "2 GiB"}, **FEW))
    assert plan.status == "infeasible"
    table = Page(nest.report_page(plan)).table("Single changes that make a plan fit")
    prices = nest.explain(plan, only=["constraints"]).to_dict()["constraints"]
    freeing = [f"{each['place']} {each['written']}" for each in prices if each["plan"] is not None]
    told = [row[0].text for row in table.rows]
    assert freeing
    assert told[: len(freeing)] == freeing
    assert set(told[len(freeing) :]) <= {"memory 2 GiB", "devices 16 devices"}
    assert all("pp" in cell.text for cell in table.column("plan"))


def test_parts_are_left_out(plan: PlanDocument) -> None:
    page = Page(quick(plan))
    assert not {told.get("id") for _, told in page.tags} & set(PARTS)


@pytest.mark.parametrize(
    ("asked", "told"), [({"without": ["frontiers"]}, "frontiers"), ({"time_limit": -1.0}, "limit")]
)
def test_slips_are_told(asked: dict[str, object], told: str, plan: PlanDocument) -> None:
    with pytest.raises(InputError, match=told):
        nest.report_page(plan, **asked)  # type: ignore[arg-type]
