"""Ports: the oracle against the pricing of plans, the brute force against every plan, and the draws themselves."""

from collections import Counter

import pytest

from tests.agreement.busy_plans import KINDS, decided, runnable_plans, with_ports, without_ports
from tests.oracle.check import same
from tests.oracle.price import price


def priced(problem: dict, plan: dict) -> list[tuple[float, float]]:
    """`t` and `y` of every stage, as the planner prices the plan, and then its step time."""
    from nest.plan.evaluate import evaluate

    found = evaluate(*decided(problem, plan))
    return [*((stage.time, stage.sync) for stage in found.stages), (found.batch_time, found.sync)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_oracle_prices_busy_ports_as_the_planner_does(kind):
    counts: Counter[str] = Counter()
    for seed in range(14):
        random, problem = with_ports(seed, kind)
        bare = without_ports(problem)
        for plan in runnable_plans(random, problem):
            told = price(problem, plan)
            expected = [(stage["time"], stage["sync_time"]) for stage in told["stages"]]
            expected.append((told["batch_time"], max(sync for _, sync in expected)))
            for found, numbers in zip(priced(problem, plan), expected, strict=True):
                assert all(map(same, found, numbers)), (kind, seed, plan)
            counts["plans"] += 1
            counts[f"{plan['chunks'] > 1} chunks"] += 1
            for stage, alone in zip(told["stages"], price(bare, plan)["stages"], strict=True):
                counts["slower"] += stage["time"] > alone["time"] * (1 + 1e-9)
                counts["held up"] += stage["sync_time"] > alone["sync_time"] * (1 + 1e-9)
    assert counts["plans"] > 14
    assert counts["slower"] > counts["plans"] / 5
    assert counts["held up"] > 0
    assert (counts["True chunks"] > 4) == (kind == "chunked")
