"""What a plan is called where it lost."""

import pytest

from nest.instance import Solution, StageDecision
from nest.report.other_plans import label
from nest_whatif.text.tables import slower_by
from tests.small_instances import candidate, instance

PROBLEM = instance(
    [
        candidate(3, name="a", width=1, degrees={"tp": 1, "cp": 1}),
        candidate(3, name="b", width=2, degrees={"tp": 2, "cp": 1}),
        candidate(3, name="c", width=2, degrees={"tp": 1, "batch": 2}),
        candidate(3, name="d", width=2, degrees={"tp": 2, "cp": 1}),
    ],
    mixed=True,
)


@pytest.mark.parametrize(
    ("used", "degrees"),
    [
        ((0, 0, 0), ""),
        ((1, 1, 1), "tp 2, "),
        ((1, 0, 1), "tp 2/1, "),
        ((0, 2, 1), "tp 1/2, batch 1/2, "),
        ((1, 3, 1), "tp 2, candidates b and d, "),
    ],
)
def test_degrees_that_differ_are_listed_in_pipeline_order(used: tuple[int, ...], degrees: str) -> None:
    stages = (StageDecision((layer,), index, "none", 0, 2 * layer) for layer, index in enumerate(used))
    plan = Solution(1, "pp-inner", "1f1b", tuple(stages))
    assert label(PROBLEM, plan) == f"{degrees}pp 3, replicas 1, micro-batch 1"


@pytest.mark.parametrize(
    ("relative", "reason", "proved", "text"),
    [
        (0.0123, "compute", True, "1.2 % slower"),
        (0.0123, "compute", False, "at most 1.2 % slower"),
        (-0.0062, "bubble", True, "0.6 % faster"),
        (-0.0062, "bubble", False, "at least 0.6 % faster"),
        (-1e-6, "bubble", True, "under 0.01 % faster"),
        (0.0, None, True, "as fast"),
    ],
)
def test_plans_beside_a_simpler_one_may_be_faster(relative: float, reason: str | None, proved: bool, text: str) -> None:
    assert slower_by({"relative": relative, "reason": reason}, proved=proved) == text
