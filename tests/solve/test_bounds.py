"""Quick looks find no more than trying every plan does: the fewest stages that layers need, how long one must take."""

from collections import Counter
from functools import partial
from itertools import combinations, product
from math import inf

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.plan.evaluate import evaluate
from nest.solve.dp import line
from nest.solve.dp.bounds import LeanMode, fewest_stages
from nest.solve.dp.compute_bounds import ShareOut
from nest.solve.dp.downsets import lattice, membership
from nest.solve.dp.listing import configurations
from nest.solve.dp.plain import PlainSearch
from nest.solve.dp.units import Splits
from tests.small_instances import candidate, cluster, instance

AMOUNT = st.integers(0, 9) | st.just(10**20)
Layers = list[tuple[int, int, int, int]]
"""Of each layer, the last first: seconds, bytes of a first and of a further micro-batch, transient bytes."""


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[Layers], list[int], int, int]:
    """Layers in each of some modes, micro-batches in flight, seconds and bytes."""
    layers = draw(st.integers(1, 6))
    amounts = st.tuples(AMOUNT, AMOUNT, AMOUNT, AMOUNT)
    modes = draw(st.lists(st.lists(amounts, min_size=layers, max_size=layers), min_size=1, max_size=3))
    in_flight = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    return modes, in_flight, draw(st.integers(0, 40)), draw(st.integers(0, 60))


def lean(mode: Layers) -> LeanMode:
    seconds, first, more, peak = (numpy.array(column, dtype=float) for column in zip(*mode, strict=True))
    sums = [numpy.concatenate([[0.0], numpy.cumsum(values)]) for values in (seconds, first, more)]
    return LeanMode(sums[0], sums[1], sums[2], peak)


def holds(mode: Layers, flying: int, seconds: int, room: int) -> bool:
    memory = sum(first + (flying - 1) * more for _, first, more, _ in mode) + max(peak for *_, peak in mode)
    return sum(time for time, *_ in mode) <= seconds and memory <= room


@given(chains())
def test_no_cuts_do_with_fewer_stages_of_layers_in_either_mode(chain: tuple[list[Layers], list[int], int, int]) -> None:
    """The first layers of each stage in one mode, the others in another."""
    modes, in_flight, seconds, room = chain
    light, heavy = modes[0], modes[-1]
    layers, enough = len(light), inf
    for count in range(1, min(layers, len(in_flight)) + 1):
        for inner in combinations(range(1, layers), count - 1):
            ends = [0, *inner, layers]
            stages = [slice(ends[index], ends[index + 1]) for index in range(count)]
            if all(
                any(
                    holds(light[stage][:first] + heavy[stage][first:], flying, seconds, room)
                    for first in range(stage.stop - stage.start + 1)
                )
                for stage, flying in zip(stages, in_flight, strict=False)
            ):
                enough = min(enough, count)
    least = numpy.minimum(numpy.array(light, dtype=float), numpy.array(heavy, dtype=float)).astype(object).tolist()
    leanest = lean([(a, b, c, d) for a, b, c, d in least])
    assert fewest_stages([leanest._replace(mixed=(lean(light), lean(heavy)))], in_flight, seconds, room) <= enough


@given(chains())
def test_no_cuts_do_with_fewer_stages(chain: tuple[list[Layers], list[int], int, int]) -> None:
    modes, in_flight, seconds, room = chain
    layers = len(modes[0])
    enough = inf
    for count in range(1, min(layers, len(in_flight)) + 1):
        for inner in combinations(range(1, layers), count - 1):
            ends = [0, *inner, layers]
            stages = [slice(ends[index], ends[index + 1]) for index in range(count)]
            if all(
                any(holds(mode[stage], flying, seconds, room) for mode in modes)
                for stage, flying in zip(stages, in_flight, strict=False)
            ):
                enough = min(enough, count)
    leanest = [lean(mode) for mode in modes]
    found = fewest_stages(leanest, in_flight, seconds, room)
    if all(mode.tells(max(in_flight), seconds, room) for mode in leanest):
        assert found == (enough if enough <= len(in_flight) else len(in_flight) + 1)
    else:
        assert found == 1


def test_a_stage_further_in_front_may_hold_what_the_one_behind_it_cannot() -> None:
    """Nothing says that there are more micro-batches in flight the further in front a stage is."""
    layers: Layers = [(1, 1, 0, 0), (1, 1, 0, 0), (1, 1, 0, 0), (1, 1, 10, 0)]
    in_flight = [1, 8, 1]
    assert holds(layers[:2], 1, 9, 3)
    assert holds(layers[2:3], 8, 9, 3)
    assert holds(layers[3:], 1, 9, 3)
    assert fewest_stages([lean(layers)], in_flight, 9, 3) == 3


@given(st.lists(st.integers(0, 20), min_size=1, max_size=5))
def test_no_sharing_out_of_layers_has_a_faster_slowest_stage(seconds: list[int]) -> None:
    found = ShareOut(len(seconds)).slowest(numpy.array(seconds, dtype=float))
    for stages, bound in enumerate(found.tolist(), start=1):
        least = min(
            max(
                sum(time for time, home in zip(seconds, homes, strict=True) if home == stage) for stage in range(stages)
            )
            for homes in product(range(stages), repeat=len(seconds))
        )
        assert max(seconds) * (1 - 1e-9) <= bound <= least


@pytest.mark.parametrize("seed", range(6))
def test_no_plan_takes_less_beside_its_slowest_stage(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all that beat the limit; here all numbers of stages count as nearly as many."""
    monkeypatch.setattr(line, "ALIKE", 10.0)
    problem = instance([candidate(6, seed=seed)], machines=cluster((2, 4)), zero=(0, 2), global_batch=8)
    downsets, told = lattice(membership([64 - (1 << place) for place in range(6, -1, -1)], 6)), 0
    for each in configurations(problem, 6, Splits(problem).counts)[0]:
        search = PlainSearch(problem, [each], downsets)
        counts, joints = each.stage_counts, {}
        floors = dict(zip(counts, search._floors(each, counts, inf), strict=True))
        solved = {count: search.solve(each, count, floors[count], inf, Counter()) for count in counts}
        best = {count: plan for count, plan in solved.items() if plan is not None}
        limits = {(share * best[count].value, count) for share, count in product((inf, 1.3, 1.1, 1.0001), counts)}
        # As of a search, they shrink.
        for limit, count in sorted(limits, reverse=True):
            boundary = search.boundaries(each).relaxed
            bound = line.least_beside(
                search, partial(search.tables, each), boundary, each, count, limit, floors, joints
            )
            slowest = max(stage.time for stage in evaluate(problem, best[count].solution).stages)
            if best[count].value <= limit:
                assert bound <= best[count].value - search.objective(each, count).slowest * slowest + 1e-9
            told += bound > 0
    assert told
