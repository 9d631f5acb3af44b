"""The planner against the oracle on random problems in which stages may recompute some of their layers."""

import pytest

from tests.agreement.fuzz import agree
from tests.agreement.parts import KINDS, examine
from tests.seeds import blocks

PARTED = "answer: a plan with parts"
LONG = {("chunked", 2), ("mixed", 1), ("pools", 2)}
FIRST = 3
"""Problems of each kind in the default run, beside those that tell."""


@pytest.mark.longer
@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        pytest.param(kind, seed, marks=pytest.mark.slow if (kind, seed) in LONG else ())
        for kind in sorted(KINDS)
        for seed in range(FIRST)
    ],
)
def test_the_planner_agrees_with_the_oracle_where_stages_recompute_some_layers(kind, seed):
    agree(examine, [seed], kind)


def test_a_number_that_no_chunk_exceeds_is_kept_where_no_whole_mode_stands_for_it():
    """Six layers are fixed, and chunks hold two at most; or a rule reads the number."""
    agree(examine, [17, 12560], "schedules")


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks(100, 3100))
def test_the_planner_agrees_with_the_oracle_on_many_problems_with_parts(block):
    seen = agree(examine, block)
    assert seen[PARTED] > seen["all"] / 10
