"""Parameters of which the default run takes some, and longer tiers the others."""

import os
from collections.abc import Collection, Iterable
from typing import Any

import pytest

SLOW = "NEST_TESTS_SLOW"
"""Environment variable that is empty where this run leaves out what is slow (`conftest.py`)."""


def seeds(quick: int, of: int, first: int = 0, long: Collection[int] = ()) -> list[Any]:
    """`of` parameters of a test from `first` on; all behind the first `quick` have the marker `slow`.

    So have those among the first whose problems take seconds, where others take tenths (`long`). A run that leaves out
    what is slow need not collect tens of thousands of them.
    """
    every = range(first, first + of)
    now = [seed for seed in every if seed < first + quick and seed not in long]
    if not os.environ.get(SLOW, "1"):
        return now
    return [seed if seed in now else pytest.param(seed, marks=pytest.mark.slow) for seed in every]


def blocks(first: int, last: int) -> list[Any]:
    """Ranges of fifty seeds each from `first` to below `last`: one test instead of fifty to collect."""
    starts = range(first, last, 50)
    return [pytest.param(range(start, min(start + 50, last)), id=str(start)) for start in starts]


def few(every: Iterable[Any], *now: Any) -> list[Any]:
    """Parameters of a test; all but those of `now` have the marker `longer`."""
    return [each if each in now else pytest.param(each, marks=pytest.mark.longer) for each in every]
