"""Documents of mixed plans say all that was decided, and their check accepts no other numbers."""

from typing import Any

import pytest
from attrs import evolve
from hypothesis import given

from nest.instance import Instance, Solution
from nest.plan.check import check
from nest.plan.document import document, solution_of
from nest.plan.evaluate import evaluate
from nest.spec import PlanDocument
from tests.plan.mixed_plans import mixed_plans

Plan = tuple[Instance, Solution]


def written(problem: Instance, solution: Solution, **changes: Any) -> PlanDocument:
    """The document of a plan as if a search had found it, its time proved by nobody."""
    found = document(
        problem, solution, evaluate(problem, solution), status="feasible", lower_bound=0.0, problem={"nest": 1}
    )
    return evolve(found, **changes)


@pytest.mark.longer
@given(mixed_plans())
def test_a_document_says_what_was_decided(plan: Plan) -> None:
    problem, solution = plan
    found = written(problem, solution)
    assert solution_of(problem, found) == solution
    assert check(problem, found).ok


@pytest.mark.longer
@given(mixed_plans())
def test_the_candidate_of_a_document_is_the_first_of_the_widest(plan: Plan) -> None:
    problem, solution = plan
    found = written(problem, solution)
    assert found.candidate is not None
    widths = [stage.devices[1] for stage in found.stages]
    assert found.candidate.width == max(widths)
    assert found.candidate.name == found.stages[widths.index(max(widths))].candidate


@pytest.mark.longer
@given(mixed_plans())
def test_without_search_mixed_only_one_candidate_is_a_plan(plan: Plan) -> None:
    problem, solution = plan
    report = check(evolve(problem, space=evolve(problem.space, mixed=False)), written(problem, solution))
    assert report.ok == (len({stage.candidate for stage in solution.stages}) == 1)
    assert report.ok or "search.mixed" in report.disagreements[0]
