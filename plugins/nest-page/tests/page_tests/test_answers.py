"""The parts that take searches: what the page says is what the questions answer."""

from typing import Any

import pytest

import nest
from nest import api
from nest.errors import InputError
from nest.spec import PlanDocument
from nest.whatif.solver import Solver
from nest_page.page_of_plan import PARTS
from nest_whatif.pareto_front import pareto_front
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
