"""Random seeds of which the default run takes the first, and `pytest -m slow` the others."""

from typing import Any

import pytest


def seeds(quick: int, of: int, first: int = 0) -> list[Any]:
    """`of` parameters of a test from `first` on; all behind the first `quick` have the marker `slow`."""
    others = range(first + quick, first + of)
    return [*range(first, first + quick), *(pytest.param(seed, marks=pytest.mark.slow) for seed in others)]


def blocks(first: int, last: int) -> list[Any]:
    """Ranges of fifty seeds each from `first` to below `last`: one test instead of fifty to collect."""
    starts = range(first, last, 50)
    return [pytest.param(range(start, min(start + 50, last)), id=str(start)) for start in starts]
