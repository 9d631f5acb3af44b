"""A better cluster is never slower, on random pairs of problems."""

import pytest

from tests.agreement.monotone import slower
from tests.seeds import blocks, seeds


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(15, 15))
def test_a_better_cluster_is_never_slower(seed: int) -> None:
    assert slower(seed) is None


@pytest.mark.slow
@pytest.mark.parametrize("some", blocks(15, 2000))
def test_a_better_cluster_is_never_slower_on_many_pairs(some: range) -> None:
    assert [told for seed in some if (told := slower(seed)) is not None] == []
