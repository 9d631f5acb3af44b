"""The bound of networks too large to place every rank: no plan is below it, and it is where it can be reached."""

from random import Random
from typing import Any

import numpy
import pytest

import nest
from nest_cpsat import placed_model
from nest_cpsat.tier_model import tiers
from tests.agreement.random_networks import random_network_problem
from tests.oracle.network_plans import solve as brute_force
from tests.seeds import seeds


@pytest.mark.parametrize("seed", seeds(16, of=30, first=500, now=[502, 507, 513, 515]))
def test_no_plan_is_below_the_bound(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(placed_model, "MOST_CELLS", 0)
    problem = random_network_problem(Random(seed))
    plan, best = nest.solve(problem), brute_force(problem).batch_time
    assert (plan.batch_time is None) == (best is None)
    if best is not None:
        assert plan.lower_bound is not None
        assert plan.batch_time is not None
        assert plan.lower_bound <= best * (1 + 1e-9)
        assert plan.batch_time >= best * (1 - 1e-9)
        if plan.status == "optimal":
            assert plan.batch_time <= best * (1 + 1e-6)


class Pairs:
    """A network of which only pairs are known."""

    dimensions = None

    def __init__(self, bandwidth: Any) -> None:
        self.bandwidth = numpy.array(bandwidth)
        self.latency = numpy.where(self.bandwidth < 10, 2.0, 1.0)


def test_tiers_are_islands_of_faster_pairs() -> None:
    rows = numpy.full((6, 6), 1.0)
    for island in ((0, 1, 2), (3, 4)):
        for one in island:
            rows[one, list(island)] = 10.0
    rows[0, 1] = rows[1, 0] = 20.0
    found = tiers(Pairs(rows))  # type: ignore[arg-type]
    assert [(each.islands, each.bandwidth, each.latency) for each in found] == [
        ((2, 1, 1, 1, 1), 10.0, 1.0),
        ((3, 2, 1), 1.0, 2.0),
    ]
    assert tiers(Pairs(numpy.full((4, 4), 1.0))) == ()  # type: ignore[arg-type]
