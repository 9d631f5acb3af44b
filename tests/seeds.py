"""Parameters of which the default run takes some, and longer tiers the others."""

import os
from collections.abc import Collection, Iterable
from typing import Any

import pytest

SLOW = "NEST_TESTS_SLOW"
"""Environment variable that is empty where this run leaves out what is slow (`conftest.py`)."""


def seeds(quick: int, of: int, first: int = 0, long: Collection[int] = (), now: Collection[int] = ()) -> list[Any]:
    """`of` parameters of a test from `first` on; all behind the first `quick` have the marker `slow`.

    So have those among the first whose problems take seconds, where others take tenths (`long`). Of the first, those
    outside of `now` have the marker `longer`, if it names any. A run that leaves out what is slow need not collect tens
    of thousands of seeds.
    """
    every = range(first, first + of)
    soon = [seed for seed in every if seed < first + quick and seed not in long]
    found = few(soon, *now) if now else list(soon)
    if not os.environ.get(SLOW, "1"):
        return found
    return found + [pytest.param(seed, marks=pytest.mark.slow) for seed in every if seed not in soon]


def blocks(first: int, last: int) -> list[Any]:
    """Ranges of fifty seeds each from `first` to below `last`: one test instead of fifty to collect."""
    starts = range(first, last, 50)
    return [pytest.param(range(start, min(start + 50, last)), id=str(start)) for start in starts]


def few(every: Iterable[Any], *now: Any) -> list[Any]:
    """Parameters of a test, tuples of several or single ones; all but those of `now` have the marker `longer`."""

    def later(each: Any) -> Any:
        return pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=pytest.mark.longer)

    return [each if each in now else later(each) for each in every]
