"""Ports: the oracle against the pricing of plans, the brute force against every plan, and the draws themselves."""

from collections import Counter

import pytest

from tests.agreement import draws
from tests.agreement.busy_plans import KINDS, decided, runnable_plans, with_ports, without_ports
from tests.agreement.draws import draw
from tests.oracle.brute_force import solve
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


@pytest.mark.longer
def test_busy_ports_often_change_the_best_plan():
    slower = other = 0
    for seed in range(25):
        _, problem = with_ports(seed, "plain")
        found, alone = solve(problem), solve(without_ports(problem))
        if found.plan is not None:
            slower += found.batch_time > alone.batch_time * (1 + 1e-9)
            other += price(problem, alone.plan)["batch_time"] > found.batch_time * (1 + 1e-9)
    assert slower > 5
    assert other > 1


@pytest.mark.longer
def test_draws_in_the_corner_have_ports_and_are_otherwise_as_ever(monkeypatch):
    def told(problem: dict) -> bool:
        return any("busy" in candidate for candidate in problem["profile"]["candidates"])

    assert all(told(draw(seed, "mixed", corner="ports").problem) for seed in range(8))
    before = [draw(seed, "uneven").problem for seed in range(12)]
    monkeypatch.setattr(draws, "PORTS", 0.5)
    after = [draw(seed, "uneven") for seed in range(12)]
    assert 0 < sum("ports" in each.corners for each in after) < len(after)
    for plain, each in zip(before, after, strict=True):
        assert told(each.problem) == ("ports" in each.corners)
        if "ports" not in each.corners:
            assert each.problem == plain
