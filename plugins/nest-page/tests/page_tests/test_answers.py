"""The parts that take searches: what the page says is what the questions answer."""

import pytest

import nest
from nest.errors import InputError
from nest.spec import PlanDocument
from nest.whatif.solver import Solver
from nest_page.page_of_plan import PARTS
from nest_whatif.pareto_front import pareto_front
from page_tests.plans import quick
from page_tests.reading import Page
from tests.simulate.uniform_plans import uniform_plan

CHOICES = "Best alternatives"


@pytest.fixture(scope="module")
def plan() -> PlanDocument:
    return uniform_plan(3, "1f1b")


@pytest.mark.longer
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
def test_a_plan_that_was_given_is_not_said_to_be_the_best(plan: PlanDocument) -> None:
    page = Page(nest.report_page(plan, without=["frontier", "sensitivity"]))
    assert CHOICES not in {table.caption for table in page.tables}


@pytest.mark.longer
def test_parts_are_left_out(plan: PlanDocument) -> None:
    page = Page(quick(plan))
    assert not {told.get("id") for _, told in page.tags} & set(PARTS)


@pytest.mark.parametrize(
    ("asked", "told"), [({"without": ["frontiers"]}, "frontiers"), ({"time_limit": -1.0}, "limit")]
)
def test_slips_are_told(asked: dict[str, object], told: str, plan: PlanDocument) -> None:
    with pytest.raises(InputError, match=told):
        nest.report_page(plan, **asked)  # type: ignore[arg-type]
