"""Splits into stages, against every split there is."""

from itertools import combinations, product

import numpy
import pytest
from hypothesis import example, given, strategies

from nest_planners.splits import Option, even_slowest, over_submeshes
from nest_planners.tables import StageTable

seconds = strategies.integers(1, 9).map(float)


def table(times: list[float], held: list[float], capacity: float) -> StageTable:
    """Stages of layers that take and hold so much for each micro-batch in flight."""

    def sums(values: list[float]) -> numpy.ndarray:
        ends = numpy.concatenate([[0.0], numpy.cumsum(values)])
        return ends[None, :] - ends[:, None]

    empty = numpy.tri(len(times) + 1, dtype=bool)
    return StageTable(numpy.where(empty, numpy.inf, sums(times)), sums(held), sums(held), capacity)


def every_split(units: int, stages: int) -> list[list[tuple[int, int]]]:
    return [list(zip((0, *cuts), (*cuts, units), strict=True)) for cuts in combinations(range(1, units), stages - 1)]


def fits(made: StageTable, split: list[tuple[int, int]]) -> bool:
    behind = range(len(split), 0, -1)
    return all(made.fits(float(count))[run] for count, run in zip(behind, split, strict=True))


chains = strategies.integers(1, 6).flatmap(
    lambda units: strategies.tuples(
        strategies.lists(seconds, min_size=units, max_size=units),
        strategies.lists(seconds, min_size=units, max_size=units),
        strategies.integers(1, 60).map(float),
    )
)


@example(([1.0, 1.0], [1.0, 1.0], 1.9))
@given(chains)
def test_the_slowest_stage_is_the_least_there_is_for_every_number_of_stages(drawn):
    times, held, capacity = drawn
    made = table(times, held, capacity)
    found = {len(split.cuts) + 1: split for split in even_slowest(made, len(times), float)}
    for stages in range(1, len(times) + 1):
        possible = [split for split in every_split(len(times), stages) if fits(made, split)]
        assert (stages in found) == bool(possible)
        if possible:
            best = min(max(made.time[run] for run in split) for split in possible)
            assert found[stages].slowest == pytest.approx(best)
            assert found[stages].total == pytest.approx(sum(times))
            taken = [*zip((0, *found[stages].cuts), (*found[stages].cuts, len(times)), strict=True)]
            assert fits(made, taken)


@example(([1.0], [1.0], 60.0), 3, True, None)
@given(chains, strategies.integers(1, 5), strategies.booleans(), strategies.sampled_from([None, 1, 3, 40]))
def test_stages_of_several_submeshes_are_the_best_there_are(drawn, devices, whole, micro_batches):
    times, held, capacity = drawn
    narrow = table(times, held, capacity)
    wide = table([time * 0.6 for time in times], [each / 2 for each in held], capacity)
    made, widths = [narrow, wide], [1, 2]
    options = [Option.of(each, width, float, len(times)) for each, width in zip(made, widths, strict=True)]
    found = over_submeshes(options, devices, whole, micro_batches)
    best = None
    for stages in range(1, len(times) + 1):
        for split, chosen in product(every_split(len(times), stages), product((0, 1), repeat=stages)):
            used = sum(widths[place] for place in chosen)
            if used > devices or (whole and used != devices):
                continue
            behind = range(stages, 0, -1)
            runs = list(zip(chosen, split, behind, strict=True))
            if not all(made[place].fits(float(count))[run] for place, run, count in runs):
                continue
            costs = [made[place].time[run] for place, run, _ in runs]
            cost = max(costs) if micro_batches is None else sum(costs) + (micro_batches - 1) * max(costs)
            best = cost if best is None else min(best, cost)
    assert (found is None) == (best is None)
    if found is not None:
        cost = found.slowest if micro_batches is None else found.latency(micro_batches)
        assert cost == pytest.approx(best)
        assert len(found.options) == len(found.cuts) + 1
