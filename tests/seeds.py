"""Random seeds of which the default run takes the first, and `pytest -m slow` the others."""

from collections.abc import Collection
from typing import Any

import pytest


def seeds(quick: int, of: int, first: int = 0, long: Collection[int] = ()) -> list[Any]:
    """`of` parameters of a test from `first` on; all behind the first `quick` have the marker `slow`.

    So have those among the first whose problems take seconds, where others take tenths (`long`).
    """
    return [
        pytest.param(seed, marks=pytest.mark.slow) if seed >= first + quick or seed in long else seed
        for seed in range(first, first + of)
    ]


def blocks(first: int, last: int) -> list[Any]:
    """Ranges of fifty seeds each from `first` to below `last`: one test instead of fifty to collect."""
    starts = range(first, last, 50)
    return [pytest.param(range(start, min(start + 50, last)), id=str(start)) for start in starts]
