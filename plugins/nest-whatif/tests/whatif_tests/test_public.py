"""The public functions check a plan before they ask about it."""

import pytest
from attrs import evolve

import nest
from nest.errors import InputError
from tests.whatif.small import solved


@pytest.mark.longer
def test_a_plan_whose_numbers_do_not_hold_is_refused() -> None:
    plan, _, _ = next(solved(range(5)))
    assert plan.batch_time is not None
    wrong = evolve(plan, batch_time=plan.batch_time / 2)
    for asked in (nest.frontier, nest.sensitivity):
        with pytest.raises(InputError, match="the plan fails its check, so nest cannot use it"):
            asked(wrong)
