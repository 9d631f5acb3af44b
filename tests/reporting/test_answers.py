"""The parts that take searches: what the page says is what the questions answer."""

import pytest

from nest import reporting
from nest.errors import InputError
from nest.files import structure
from nest.hooks.registry import registry
from nest.questions.frontier import frontier
from nest.questions.sensitivity import sensitivity
from nest.questions.solver import Solver
from nest.reporting.answers import PARTS, most_searches
from nest.spec import PlanDocument, Problem
from tests.reporting.plans import quick
from tests.reporting.reading import Page
from tests.simulate.uniform_plans import uniform_plan


@pytest.fixture(scope="module")
def plan() -> PlanDocument:
    return uniform_plan(3, "1f1b")


def test_the_frontier_is_on_the_page(plan: PlanDocument) -> None:
    told: list[tuple[str, int]] = []
    text = reporting.report(plan, without=["sensitivity"], progress=lambda asking, done, _: told.append((asking, done)))
    table = Page(text).table("The fastest plans within limits")
    points = frontier(plan, Solver())
    assert table.values("memory") == [point.memory for point in points]
    assert table.values("batch time") == [point.batch_time for point in points if point.batch_time is not None]
    assert [done for _, done in told] == list(range(len(told)))
    assert told


def test_the_sensitivity_is_on_the_page(plan: PlanDocument) -> None:
    table = Page(reporting.report(plan, without=["frontier"])).table("Batch time with one number changed")
    responses = sensitivity(plan, Solver())
    assert table.values("this plan kept") == [each.kept for each in responses if each.kept is not None]
    assert table.values("best plan") == [each.best for each in responses if each.best is not None]


@pytest.mark.parametrize("without", [["frontier"], ["sensitivity"], []])
def test_no_more_searches_are_made_than_were_told(without: list[str], plan: PlanDocument) -> None:
    asked: list[tuple[int, int]] = []
    reporting.report(plan, without=without, progress=lambda _, done, most: asked.append((done, most)))
    assert asked
    assert len({most for _, most in asked}) == 1
    assert all(done < most for done, most in asked)
    assert most_searches(structure(plan.problem, Problem), PARTS, registry()) == 0


def test_parts_are_left_out(plan: PlanDocument) -> None:
    page = Page(quick(plan))
    assert not {told.get("id") for _, told in page.tags} & set(PARTS)


@pytest.mark.parametrize(
    ("asked", "told"), [({"without": ["frontiers"]}, "frontiers"), ({"time_limit": -1.0}, "limit")]
)
def test_slips_are_told(asked: dict[str, object], told: str, plan: PlanDocument) -> None:
    with pytest.raises(InputError, match=told):
        reporting.report(plan, **asked)  # type: ignore[arg-type]
