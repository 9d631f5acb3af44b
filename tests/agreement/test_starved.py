"""What lacks where no device has the memory that any plan needs: the diagnosis against the oracle."""

import pytest

from tests.agreement.compare import complaint, disagreements
from tests.agreement.fuzz import agree
from tests.agreement.parts import examine
from tests.agreement.starved import examine as examine_starved
from tests.agreement.starved import starved
from tests.seeds import blocks


@pytest.mark.longer
@pytest.mark.parametrize(
    ("kind", "seed"), [("plain", 2), ("plain", 22), ("plain", 35), ("uneven", 16), ("mixed", 3), ("mixed schedules", 0)]
)
def test_the_least_memory_is_that_of_stages_that_recompute_alike(kind, seed):
    """The least of each stage may be that of another mode: a plan must not be said to fit, nor to lack less."""
    asked = starved(seed, kind, alike=True)
    wrong = disagreements(asked.problem, asked.answer, checked=False)
    assert not wrong, complaint(f"seed {seed}, {kind}", asked.problem, wrong)


def test_memory_is_to_blame_where_chunks_that_recompute_alike_do_not_fit():
    """No mode fits in all stages of any pattern: what they need is asked for all the same."""
    agree(examine, [20012], "schedules")


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks(25, 225))
def test_the_diagnosis_agrees_with_the_oracle_on_many_problems(block):
    agree(examine_starved, block)
