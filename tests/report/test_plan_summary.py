"""Derived figures: shares add up, utilisation and bubble follow their definitions."""

import pytest

from nest.instance import Solution, StageDecision
from nest.plan.evaluate import evaluate
from nest.report.plan_summary import ModelFacts, figures, price_of_an_hour, time_shares
from nest.spec import ClusterSpec, LevelSpec, PoolSpec
from tests.small_instances import candidate, cluster, instance


def two_stages(cut: int) -> Solution:
    layers = tuple(range(6))
    return Solution(
        2,
        "pp-inner",
        "1f1b",
        (StageDecision(layers[:cut], 0, "none", 3, 0), StageDecision(layers[cut:], 0, "full", 1, 1)),
    )


def test_shares_add_up_to_the_batch_time() -> None:
    problem = instance([candidate(6)])
    for cut in range(1, 6):
        priced = evaluate(problem, two_stages(cut))
        assert sum(time_shares(priced).values()) == pytest.approx(priced.batch_time)


def test_utilisation_counts_three_forward_passes_on_the_devices_used() -> None:
    problem = instance([candidate(6)], machines=cluster((2, 4)))
    priced = evaluate(problem, two_stages(3))
    found = figures(problem, two_stages(3), priced, ModelFacts(100, 1500.0, {"": 7.0}))
    tokens = 8 * 100 / priced.batch_time
    assert found["devices_used"] == 4
    assert found["devices"] == 8
    assert found["tokens_per_second"] == pytest.approx(tokens)
    assert found["tokens_per_second_per_device"] == pytest.approx(tokens / 4)
    assert found["model_flops_utilisation"] == pytest.approx(3 * 5.0 * tokens / (4 * 7.0))


def test_devices_of_pools_cost_what_their_pool_says() -> None:
    """Eight devices of 2.5 an hour and four of 1.25; a pool that nobody uses needs no price."""
    level = LevelSpec(8, 100.0, 0.0)
    pools = tuple(
        PoolSpec(name, (level,), price=price) for name, price in (("new", 2.5), ("old", 1.25), ("idle", None))
    )
    used = [{"name": name, "devices_used": count} for name, count in (("new", 8), ("old", 4), ("idle", 0))]
    assert price_of_an_hour(ClusterSpec(pools=pools), {"pools": used}) == 25.0
    used[2]["devices_used"] = 1
    assert price_of_an_hour(ClusterSpec(pools=pools), {"pools": used}) is None
