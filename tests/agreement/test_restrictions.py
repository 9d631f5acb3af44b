"""No constraint, decision or shorter list makes an optimum faster."""

import pytest

from tests.agreement.restrictions import Tally, examine, faults
from tests.seeds import seeds

SEEDS = seeds(5, 100, first=2000)


@pytest.mark.longer
@pytest.mark.parametrize("seed", SEEDS)
def test_a_restriction_makes_nothing_faster(seed: int) -> None:
    tally = Tally()
    examine(seed, tally)
    assert not tally.wrong


def test_what_is_faster_is_told() -> None:
    class Plan:
        outside: tuple[str, ...] = ()

        def __init__(self, seconds: float | None) -> None:
            self.batch_time = seconds

    assert faults(Plan(2.0), Plan(1.0))
    assert faults(Plan(None), Plan(1.0))
    assert not faults(Plan(1.0), Plan(2.0))
    assert not faults(Plan(1.0), Plan(None))
    assert not faults(None, Plan(1.0))
