"""What the page says a plan decides is what it decides."""

from nest.hooks.registry import registry
from nest_page.headline import plan_in_words
from nest_page.page_of_plan import subject
from tests.simulate.uniform_plans import uniform_plan


def test_measured_layers_have_words() -> None:
    assert "micro-batch" in plan_in_words(subject(uniform_plan(3, "1f1b"), registry()))
