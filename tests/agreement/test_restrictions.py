"""No constraint, decision or shorter list makes an optimum faster."""

import pytest

from tests.agreement.restrictions import Tally, examine
from tests.seeds import seeds

SEEDS = seeds(5, 100, first=2000)


@pytest.mark.longer
@pytest.mark.parametrize("seed", SEEDS)
def test_a_restriction_makes_nothing_faster(seed: int) -> None:
    tally = Tally()
    examine(seed, tally)
    assert not tally.wrong
