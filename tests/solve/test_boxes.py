"""The trade between slowest stage, sum and gradient reduction, and the recurrence and the bound that it asks."""

from itertools import combinations
from math import inf

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.instance import Array
from nest.solve.dp import recurrence
from nest.solve.dp.choices import UNKNOWN, Choice, ChoiceTable
from nest.solve.dp.line import JointSums, has_line
from nest.solve.dp.pairs import Pairs
from nest.solve.dp.pareto import Floor, Objective, Partition, PlacedStage, least_batch_time
from nest.solve.dp.stages import StageTables
from nest.solve.search import Meter

Point = tuple[int, int, int, int]
"""Slowest stage, sum, longest gradient reduction, and what the joint bound counts of it at most."""

POINTS = st.lists(st.tuples(*[st.integers(0, 30)] * 3, st.integers(0, 3)), min_size=1, max_size=40)


@given(POINTS, st.integers(0, 4), st.integers(1, 3), st.integers(1, 120) | st.just(inf), st.booleans())
def test_boxes_find_the_least_of_all_partitions(
    every: list[Point], slowest: int, total: int, limit: float, joined: bool
) -> None:
    """Also where what was found within wider limits, or the joint bound, leaves boxes out."""
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


@st.composite
def chains(draw: st.DrawFn) -> tuple[StageTables, tuple[float, ...], Array, int]:
    """The stages of a chain of layers with two choices, micro-batches in flight, boundaries, levels."""
    layers, stages = draw(st.integers(1, 7)), draw(st.integers(1, 4))
    number = numpy.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    larger, smaller = (numpy.array(each, dtype=numpy.int32) for each in numpy.tril_indices(layers + 1, -1))
    pairs = Pairs.of(layers + 1, larger, smaller)
    pairs = pairs.only(number.random(len(pairs)) < 0.9) if draw(st.booleans()) else pairs
    compute = numpy.append(0.0, numpy.cumsum(number.integers(0, 5, layers)))
    work = compute[pairs.larger] - compute[pairs.smaller]
    tables = tuple(
        ChoiceTable(
            work + number.integers(0, 3, len(pairs)), *number.integers(0, 6, (3, len(pairs))).astype(numpy.float64)
        )
        for _ in range(2)
    )
    choices = (Choice("none", 0), Choice("full", 1))
    in_flight = tuple(float(each) for each in number.integers(1, 4, stages))
    levels = draw(st.integers(1, 2))
    times = number.integers(0, 3, (levels, layers + 1)).astype(numpy.float64)
    times[:, [0, -1]] = 0.0
    return StageTables(choices, tables, pairs, 12.0, compute), in_flight, times, levels


@given(chains(), st.integers(0, 30) | st.just(inf), st.integers(0, 6) | st.just(inf))
def test_a_line_is_the_recurrence_with_a_slot_a_stage(
    chain: tuple[StageTables, tuple[float, ...], Array, int], time_limit: float, sync_limit: float
) -> None:
    tables, in_flight, times, levels = chain
    steps = numpy.arange(len(in_flight) - 1) % levels

    def run() -> Partition | None:
        known = (tables, in_flight, times, steps, (UNKNOWN,) * levels, Meter())
        return recurrence.Recurrence(*known).run(time_limit, sync_limit)

    found = run()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recurrence, "has_line", lambda tables: False)
        assert run() == found
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recurrence, "has_line", lambda tables: False)
        patch.setattr(Pairs, "band", None)
        assert run() == found


@given(chains(), st.integers(0, 30) | st.just(inf), st.integers(0, 6) | st.just(inf), st.integers(1, 3))
def test_no_partition_is_below_the_joint_sums(
    chain: tuple[StageTables, tuple[float, ...], Array, int], time_limit: float, sync_limit: float, total: int
) -> None:
    tables, in_flight, times, _ = chain
    if not has_line(tables):
        return
    boundary, stages, last = times.min(axis=0), len(in_flight), tables.pairs.count - 1
    bound = JointSums(tables, boundary, in_flight, float(total), Meter()).least(time_limit, sync_limit)
    place = {
        (one, other): at for at, (one, other) in enumerate(zip(tables.pairs.larger, tables.pairs.smaller, strict=True))
    }
    least = inf
    for inner in combinations(range(1, last), stages - 1):
        cuts = [0, *inner, last]
        pairs = [(cuts[index + 1], cuts[index]) for index in range(stages)]
        if all(pair in place for pair in pairs):
            least = min(
                least,
                _least_of(
                    tables,
                    in_flight,
                    boundary,
                    total,
                    (time_limit, sync_limit),
                    [(place[pair], pair) for pair in pairs],
                ),
            )
    assert bound <= least


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
