"""A better cluster is never slower, on random pairs of problems."""

import pytest

from nest import api
from tests.agreement.monotone import pair, slower
from tests.seeds import blocks, seeds


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(15, 15))
def test_a_better_cluster_is_never_slower(seed: int) -> None:
    assert slower(seed) is None


@pytest.mark.slow
@pytest.mark.parametrize("some", blocks(15, 2000))
def test_a_better_cluster_is_never_slower_on_many_pairs(some: range) -> None:
    assert [told for seed in some if (told := slower(seed)) is not None] == []


@pytest.mark.longer
def test_pairs_differ_in_what_counts() -> None:
    """Of a few pairs, some better clusters are faster, and some have a plan where the worse has none."""
    times = [tuple(api.solve(each).batch_time for each in pair(seed)) for seed in range(12)]
    assert any(before is not None and after is not None and after < before for before, after in times)
    assert any(before == after is not None for before, after in times)
