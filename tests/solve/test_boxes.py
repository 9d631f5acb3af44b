"""The trade between slowest stage, sum and gradient reduction, and the recurrence and the bound that it asks."""

from itertools import combinations, pairwise
from math import inf
from random import Random
from typing import Any

import numpy
import pytest
from attrs import frozen

from nest.instance import Array
from nest.solve.dp.choices import UNKNOWN, Choice, ChoiceTable
from nest.solve.dp.line import JointSums
from nest.solve.dp.members import Member
from nest.solve.dp.pairs import Pairs
from nest.solve.dp.pareto import Floor, Objective, Partition, PlacedStage, least_batch_time
from nest.solve.dp.recurrence import of_slots
from nest.solve.dp.stages import StageTables
from nest.solve.search import Meter

Point = tuple[int, int, int, int]
"""Slowest stage, sum, longest gradient reduction, and what the joint bound counts of it at most."""


@pytest.mark.parametrize("joined", [False, True])
def test_boxes_find_the_least_of_all_partitions(joined: bool) -> None:
    """Also where what was found within wider limits, or the joint bound, leaves boxes out."""
    for seed in range(400):
        draw = Random(seed)
        many, largest = draw.randint(1, 40), draw.choice([6, 30])
        every = [(*(draw.randint(0, largest) for _ in range(3)), draw.randint(0, 3)) for _ in range(many)]
        limit = draw.choice([inf, float(draw.randint(1, 4 * largest))])
        _compare(every, draw.randint(0, 4), draw.randint(1, 3), limit, joined=joined)


def _compare(every: list[Point], slowest: int, total: int, limit: float, *, joined: bool) -> None:
    points = [(float(time), float(added + time), float(sync), float(less)) for time, added, sync, less in every]

    def within(time_limit: float, sync_limit: float) -> list[tuple[float, ...]]:
        return [each for each in points if each[0] <= time_limit and each[2] <= sync_limit]

    def run(time_limit: float, sync_limit: float) -> Partition | None:
        left = within(time_limit, sync_limit)
        if not left:
            return None
        time, added, sync, _ = min(left, key=lambda each: each[1])
        # Two stages whose largest time and sum are these.
        stages = (PlacedStage(2, 1, 0, 0, added, time, sync), PlacedStage(1, 0, 1, 0, 0.0, 0.0, 0.0))
        return Partition(stages)

    def joint(time_limit: float, sync_limit: float) -> float:
        each = (total * added + max(sync - less, 0.0) for _, added, sync, less in within(time_limit, sync_limit))
        return min(each, default=inf)

    objective = Objective(float(slowest), float(total))
    floor = Floor(*(min(each[term] for each in points) for term in range(3)))
    least = min(slowest * time + total * added + sync for time, added, sync, _ in points)
    found, partition = least_batch_time(run, objective, floor, limit, joint=joint if joined else None)
    if least < limit:
        assert partition is not None
        assert found == objective.of(partition) == pytest.approx(least, rel=1e-12)
    else:
        assert partition is None
    first = least_batch_time(run, objective, floor, limit, first_will_do=True, joint=joint if joined else None)
    assert (first[1] is not None) == (least < limit)


@frozen(eq=False)
class Drawn:
    """Stages of a chain of layers with two choices, and limits."""

    tables: StageTables
    in_flight: tuple[float, ...]
    times: Array
    limits: tuple[float, float]


def drawn(seed: int) -> Drawn:
    """Numbers are small and whole, so that sums are exact and ties many."""
    number = numpy.random.default_rng(seed)
    layers, stages, levels, most = (int(number.integers(*each)) for each in ((1, 8), (1, 6), (1, 3), (1, 3)))
    larger, smaller = (numpy.array(each, dtype=numpy.int32) for each in numpy.tril_indices(layers + 1, -1))
    pairs = Pairs.of(layers + 1, larger, smaller)
    if number.random() < 0.3:
        pairs = pairs.only(number.random(len(pairs)) < 0.9)
    compute = numpy.append(0.0, numpy.cumsum(number.integers(0, 5, layers)))
    work = compute[pairs.larger] - compute[pairs.smaller]

    def table() -> ChoiceTable:
        sync, first, more = number.integers(0, 6, (3, len(pairs))).astype(numpy.float64)
        return ChoiceTable(work + number.integers(0, 3, len(pairs)), sync, first, more)

    tables = StageTables((Choice("none", 0), Choice("full", 1)), (table(), table()), pairs, 12.0, compute)
    times = number.integers(0, 3, (levels, layers + 1)).astype(numpy.float64)
    times[:, [0, -1]] = 0.0
    limits = float(number.integers(0, 16)), float(number.integers(0, 6))
    limits = tuple(inf if number.random() < 0.2 else each for each in limits)
    return Drawn(tables, tuple(number.integers(1, most + 1, stages).tolist()), times, limits)


@pytest.mark.parametrize("seeds", [range(first, first + 100) for first in (0, 100, 200)])
def test_a_line_is_the_recurrence_with_a_slot_a_stage(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in seeds:
        chain = drawn(seed)
        levels = len(chain.times)
        steps = numpy.arange(len(chain.in_flight) - 1) % levels
        member = Member(0, 1, chain.tables, chain.times, (UNKNOWN,) * levels, steps)
        known = (member, chain.in_flight)

        def run(known: Any = known, limits: tuple[float, float] = chain.limits) -> Partition | None:
            return of_slots(*known, Meter(), None).run(*limits)

        found = run()
        with monkeypatch.context() as patch:
            patch.setattr(StageTables, "in_line", False)
            assert run() == found
            patch.setattr(Pairs, "band", None)
            assert run() == found


@pytest.mark.parametrize("total", [1, 3])
def test_no_partition_is_below_the_joint_sums(total: int) -> None:
    for seed in range(200):
        chain = drawn(seed)
        tables, stages, last = chain.tables, len(chain.in_flight), chain.tables.pairs.count - 1
        if not tables.in_line:
            continue
        boundary, least = chain.times.min(axis=0), inf
        bound = JointSums(tables, boundary, chain.in_flight, float(total), Meter()).least(*chain.limits)
        pairs = list(zip(tables.pairs.larger.tolist(), tables.pairs.smaller.tolist(), strict=True))
        for inner in combinations(range(1, last), stages - 1):
            cut = [(one, other) for other, one in pairwise([0, *inner, last])]
            if all(pair in pairs for pair in cut):
                taken = [(pairs.index(pair), pair) for pair in cut]
                least = min(least, _least_of(tables, chain.in_flight, boundary, total, chain.limits, taken))
        assert bound <= least


@pytest.mark.parametrize("total", [0, 1, 3])
def test_joint_sums_of_many_stages_are_below_those_of_fewer(total: int) -> None:
    several = 0
    for seed in range(200):
        chain = drawn(seed)
        tables, stages, last = chain.tables, len(chain.in_flight), chain.tables.pairs.count - 1
        if not tables.in_line:
            continue
        boundary = chain.times.min(axis=0)
        bounds = JointSums(tables, boundary, chain.in_flight, float(total), Meter()).least_of_fewer(*chain.limits)
        assert len(bounds) == stages
        pairs = list(zip(tables.pairs.larger.tolist(), tables.pairs.smaller.tolist(), strict=True))
        for count, bound in enumerate(bounds, start=1):
            least = inf
            for inner in combinations(range(1, last), count - 1):
                cut = [(one, other) for other, one in pairwise([0, *inner, last])]
                if all(pair in pairs for pair in cut):
                    taken = [(pairs.index(pair), pair) for pair in cut]
                    flying = chain.in_flight[:count]
                    least = min(least, _least_of(tables, flying, boundary, total, chain.limits, taken))
            assert bound <= least
            several += count < stages and 0 < bound < inf
    assert several


def _least_of(
    tables: StageTables,
    in_flight: tuple[float, ...],
    boundary: Array,
    total: int,
    limits: tuple[float, float],
    stages: list[tuple[int, tuple[int, int]]],
) -> float:
    """`B sum t + max y` of the best choices of these stages within limits, the last stage first."""
    sums: set[tuple[float, float]] = {(0.0, 0.0)}
    for flying, (at, (larger, smaller)) in zip(in_flight, stages, strict=True):
        grown = set()
        for table in tables.tables:
            time = float(table.time[at] + boundary[larger] + boundary[smaller])
            fits = table.first[at] + (flying - 1) * table.more[at] <= tables.capacity
            if fits and time <= limits[0] and table.sync[at] <= limits[1]:
                grown |= {(added + time, max(most, float(table.sync[at]))) for added, most in sums}
        sums = grown
    return min((total * added + most for added, most in sums), default=inf)
