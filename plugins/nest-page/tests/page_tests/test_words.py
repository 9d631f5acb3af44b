"""What the page says a plan decides is what it decides."""

from typing import Any

import pytest

from nest import api
from nest.hooks.registry import registry
from nest_page.headline import plan_in_words
from nest_page.page_of_plan import subject
from page_tests.plans import problem
from tests.simulate.uniform_plans import uniform_plan


@pytest.mark.longer
@pytest.mark.parametrize(
    ("fix", "told"),
    [
        (
            {"tp": 2, "sp": True, "pp": 4, "dp": 2, "zero": 1, "recompute": "none"},
            "Tensor parallelism 2 inside a node; 4 pipeline stages of 2 layers each, schedule 1f1b; 2 replicas of 16 "
            "micro-batches of 1 sample each. The optimizer state is sharded over data-parallel ranks (ZeRO 1); "
            "nothing is recomputed.",
        ),
        (
            {"tp": 4, "cp": 2, "pp": 1, "dp": 1, "zero": 0, "micro_batch": 2, "recompute": "full"},
            "Tensor parallelism 4 and context parallelism 2 inside a node; a single replica, 16 micro-batches of 2 "
            "samples. Every data-parallel rank holds the whole optimizer state (ZeRO 0); every layer is recomputed in "
            "the backward pass.",
        ),
        (
            {"tp": 1, "pp": 3, "dp": 2, "zero": 3, "recompute": "selective"},
            "One device for each stage; 3 pipeline stages of 2 to 3 layers, schedule 1f1b; 2 replicas of 16 "
            "micro-batches of 1 sample each. Weights, gradients and optimizer state are sharded over data-parallel "
            "ranks (ZeRO 3); recomputation: selective.",
        ),
    ],
)
def test_the_plan_is_told_as_an_engineer_would(fix: dict[str, Any], told: str) -> None:
    plan = api.evaluate(problem(), fix={"micro_batch": 1, **fix})
    assert plan_in_words(subject(plan, registry())) == told


def test_measured_layers_have_words() -> None:
    assert "micro-batch" in plan_in_words(subject(uniform_plan(3, "1f1b"), registry()))
