"""What does not take clusters of several kinds of device yet says so, and nothing else."""

from collections.abc import Callable
from typing import Any

import pytest

import nest
from nest.errors import InputError
from nest.spec import PlanDocument
from tests.pooled_problems import two_pools


@pytest.fixture(scope="module")
def problem() -> dict[str, Any]:
    return two_pools(search={"zero": [0], "rank_order": ["pp-inner"]})


@pytest.fixture(scope="module")
def plan(problem: dict[str, Any]) -> PlanDocument:
    return nest.solve(problem)


ASKED: dict[str, Callable[[dict[str, Any], PlanDocument], Any]] = {
    "frontier": lambda _, plan: nest.frontier(plan),
    "export": lambda _, plan: nest.export(plan, "dot"),
    "target": lambda problem, _: nest.solve(problem, changes={"search": {"target": "deepspeed"}}),
}


@pytest.mark.parametrize("asked", ASKED)
def test_it_is_refused_in_a_sentence(asked: str, problem: dict[str, Any], plan: PlanDocument) -> None:
    with pytest.raises(InputError, match=r"cluster\.pools|several pools"):
        ASKED[asked](problem, plan)
