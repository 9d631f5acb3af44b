"""The best-first search, whatever its nodes hold."""

import random
from collections import Counter
from math import inf

import pytest
from attrs import frozen

from nest.instance import Solution, StageDecision
from nest.solve.search import Best, BestFirst, Bounded, Incumbent, Meter, OutOfTime, PlanKind, Price
from nest.tolerances import TIE


@frozen
class One:
    """A node of one plan."""

    plan: Incumbent

    combinations = 1
    leaf = True
    quickly = True

    def only(self, kind: PlanKind) -> bool:
        return False

    def branch(self, limit: float, pruned: Counter[str]) -> list[Bounded]:
        raise AssertionError("nodes of one plan are solved")

    def quick(self) -> Incumbent | None:
        return None

    def solve(self, limit: float, pruned: Counter[str]) -> Incumbent | None:
        return self.plan if self.plan.value < limit else None


class PlanList:
    """Plans with their own times as bounds."""

    def __init__(self, plans: list[Incumbent]) -> None:
        self.meter = Meter()
        self.left = inf
        self.refused: Counter[str] = Counter()
        self.plans = plans

    def nodes(self, limit: float) -> list[Bounded]:
        return [Bounded(plan.value, plan.tie_break, One(plan)) for plan in self.plans]


def plan(value: float, rank: int) -> Incumbent:
    return Incumbent(value, (rank,), Solution(1, "pp-inner", "1f1b", (StageDecision((0,), 0, "none", 0, rank),)))


def best(plans: list[Incumbent]) -> Incumbent:
    search = BestFirst([PlanList(plans)], started=0.0)
    assert search.find_best() == float("inf")
    assert search.best is not None
    return search.best


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
    least = min(plans, key=lambda each: (each.value, each.tie_break))
    assert found.value <= least.value * (1 + TIE)
    assert found.tie_break <= least.tie_break


class Unbounded(PlanList):
    """Plans of which nothing is known."""

    def nodes(self, limit: float) -> list[Bounded]:
        return [Bounded(0.0, plan.tie_break, One(plan)) for plan in self.plans]


def test_a_search_whose_work_is_done_waits_for_a_first_plan_and_for_no_other() -> None:
    plans = [plan(3.0 - rank, rank) for rank in range(3)]
    searcher = Unbounded(plans)
    searcher.meter.states = 100
    search = BestFirst([searcher], started=0.0, most_states=50)
    assert search.find_best() == 0.0
    assert search.best is plans[0]


class Late(One):
    """A node whose time runs out while its plans are replayed."""

    def by_price(self, known: Incumbent, limit: float, price: Price) -> Best:
        raise OutOfTime


class LateList(PlanList):
    """Such nodes."""

    def nodes(self, limit: float) -> list[Bounded]:
        return [Bounded(plan.value, plan.tie_break, Late(plan)) for plan in self.plans]


def test_a_plan_that_was_replayed_is_kept_when_time_runs_out_over_others() -> None:
    search = BestFirst([LateList([plan(1.0, 0)])], started=0.0, price=lambda each: each._replace(value=2.0))
    assert search.find_best() == 1.0
    assert search.best is not None
    assert search.best.value == 2.0


class Slow(One):
    """A node whose plan takes longer by its replay."""

    def by_price(self, known: Incumbent, limit: float, price: Price) -> Best:
        return Best(None, inf)


class SlowList(PlanList):
    """Such nodes."""

    def nodes(self, limit: float) -> list[Bounded]:
        return [Bounded(plan.value, plan.tie_break, Slow(plan)) for plan in self.plans]


@pytest.mark.parametrize(("replayed", "left"), [(3.0, 2.0), (1.5, 1.5), (0.4, 0.4)])
def test_of_plans_beyond_reach_the_fastest_stays(replayed: float, left: float) -> None:
    nodes, known = SlowList([plan(0.4, 1)]), plan(2.0, 0)
    search = BestFirst([nodes], 0.0, best=known, reach=0.5, price=lambda each: each._replace(value=replayed))
    assert search.find_best() == inf
    assert search.best is not None
    assert search.best.value == left
