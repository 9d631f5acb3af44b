"""The search over families, whatever they hold."""

import random
from collections import Counter

import pytest
from attrs import frozen

from nest.instance import Solution, StageDecision
from nest.solve.dp.found import Found, Kind
from nest.solve.dp.meter import Meter
from nest.solve.dp.run import Bounded, Run
from nest.tolerances import TIE


@frozen
class One:
    """A family of one plan."""

    plan: Found

    members = 1
    solvable = True

    def only(self, kind: Kind) -> bool:
        return False


class Listed:
    """A space whose plans are listed, each with its own time as its bound."""

    def __init__(self, plans: list[Found]) -> None:
        self.meter = Meter()
        self.plans = plans

    def families(self) -> list[Bounded[One]]:
        return [Bounded(plan.value, plan.rank, One(plan)) for plan in self.plans]

    def split(self, family: One, limit: float, dropped: Counter[str]) -> list[Bounded[One]]:
        raise AssertionError("families of one plan are solved")

    def quick(self, family: One) -> Found | None:
        return None

    def solve(self, family: One, limit: float, dropped: Counter[str]) -> Found | None:
        return family.plan if family.plan.value < limit else None


def plan(value: float, rank: int) -> Found:
    return Found(value, (rank,), Solution(1, "pp-inner", "1f1b", (StageDecision((0,), 0, "none", 0, rank),)))


def best(plans: list[Found]) -> Found:
    run = Run(Listed(plans), started=0.0)
    assert run.find_best() == float("inf")
    assert run.best is not None
    return run.best


def test_ties_do_not_add_up() -> None:
    """Each of these plans is as fast as the one before it and ahead of it among equals; the last is slower."""
    chain = [plan(1 + index * 0.9 * TIE, 100 - index) for index in range(50)]
    found = best(chain)
    assert found.value <= 1 + TIE
    assert found is chain[1]


@pytest.mark.parametrize("seed", range(20))
def test_the_best_is_as_fast_as_any_and_ahead_of_the_fastest(seed: int) -> None:
    drawn = random.Random(seed)
    plans = [plan(1 + drawn.randrange(8) * 0.4 * TIE, rank) for rank in range(12)]
    drawn.shuffle(plans)
    found = best(plans)
    least = min(plans, key=lambda each: (each.value, each.rank))
    assert found.value <= least.value * (1 + TIE)
    assert found.rank <= least.rank
