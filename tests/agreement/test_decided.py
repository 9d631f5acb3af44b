"""A plan that is decided and that a search might have found is never faster than what the search proves."""

import random as random_numbers

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agreement.decided import Tally, examine
from tests.seeds import seeds

STATED = ("search.target: ", "chunks is N, but of N blocks the search tries ")
"""How reasons begin for which no search tries a plan: its target cannot run it, or chunks of so many do not come out
even."""


@pytest.mark.longer
@settings(max_examples=3)
@given(st.randoms(use_true_random=False))
def test_no_plan_that_is_decided_is_faster_than_what_the_search_proves(random: random_numbers.Random) -> None:
    tally = Tally()
    examine(random, tally, plans=6)
    assert not tally.wrong


@pytest.mark.longer
@pytest.mark.parametrize("first", seeds(1, 12))
def test_few_plans_are_outside_what_is_searched_and_each_says_why(first: int) -> None:
    """Blocks of problems: the first in the default run, with fewer plans of each."""
    tally, number = Tally(), 1 if first == 0 else 20
    for seed in range(20 * first, 20 * first + number):
        examine(random_numbers.Random(seed), tally)
    assert not tally.wrong
    assert tally.counts["compared"] > tally.counts["outside"]
    assert all(each.startswith(STATED) for each in tally.reasons), tally.reasons
