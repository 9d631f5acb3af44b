"""Random frameworks to plan for are worth something: some refuse every plan, some leave one, some cost time."""

import pytest

from tests.agreement.draws import draw
from tests.oracle.brute_force import solve


@pytest.mark.longer
def test_targets_refuse_some_plans_leave_some_and_cost_some_time():
    drawn = [draw(seed, "target") for seed in range(40)]
    left = [each for each in drawn if each.answer.plan is not None]
    assert len(drawn) / 2 < len(left) < len(drawn)
    assert any(not each.answer.reachable_memory for each in drawn if each not in left)
    wider = [solve(each.problem).batch_time for each in left]
    assert sum(time < each.answer.batch_time * 0.99 for time, each in zip(wider, left, strict=True)) > len(left) / 10
