"""The recurrence over places against every placement there is."""

from itertools import combinations

import numpy
from hypothesis import example, given
from hypothesis import strategies as st

from nest.solve.dp.choices import Choice
from nest.solve.dp.virtual_stages import InterleavedStages, Places
from nest.solve.search import Meter

LEVELS = 3


@st.composite
def problems(draw: st.DrawFn) -> tuple[Places, numpy.ndarray, float]:
    """Stages and slots, with times that are multiples of an eighth so that sums are exact."""
    stages = draw(st.integers(2, 4))
    eighths = st.integers(0, 40).map(lambda number: number / 8)
    steps = draw(st.lists(st.integers(0, LEVELS - 1), min_size=stages - 1, max_size=7))
    crossing = draw(st.lists(st.lists(eighths, min_size=stages, max_size=stages), min_size=LEVELS, max_size=LEVELS))
    base = draw(st.lists(eighths, min_size=stages, max_size=stages))
    limit = draw(st.one_of(st.just(numpy.inf), eighths.map(lambda number: 2 * number)))
    return Places(numpy.array(crossing), numpy.array(steps), tuple(range(LEVELS)), Meter()), numpy.array(base), limit


def times(places: Places, base: numpy.ndarray, slots: tuple[int, ...]) -> list[float]:
    """Seconds of each stage, boundary by boundary."""
    count = len(slots)
    found = list(base)
    for behind in range(count):
        one, two = slots[behind], slots[(behind + 1) % count]
        level = places.steps[min(one, two) : max(one, two)].max()
        seconds = places.crossing[level, (behind + 1) % count]
        found[behind] += seconds
        found[(behind + 1) % count] += seconds
    return found


def stages_of(base: numpy.ndarray) -> InterleavedStages:
    """Stages with one choice that take so long without boundaries."""
    return InterleavedStages((Choice("none", 0),), base[None], numpy.zeros((1, len(base))), numpy.zeros((1, len(base))))


def by_levels(places: Places, base: numpy.ndarray) -> numpy.ndarray:
    """Seconds of each stage by the levels in front and behind."""
    return stages_of(base).everywhere(places, numpy.inf)[0]


UNEVEN = Places(
    numpy.array([[2.375, 0.75, 0.0, 3.5], [4.25, 3.125, 4.5, 2.5], [2.125, 0.125, 3.125, 0.875]]),
    numpy.array([2, 1, 0, 2, 1]),
    (0, 1, 2),
    Meter(),
)
"""Slots in groups of one, three and two: not the first slot that a boundary leads to is best, but the one behind it."""


WORST_FIRST = Places(numpy.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]), numpy.array([1, 0]), (0, 1), Meter())
"""The way back crosses the level of the first boundary, not that of the last."""


@given(problems())
@example((WORST_FIRST, numpy.ones(3), 9.5))
@example((UNEVEN, numpy.array([4.125, 3.125, 2.75, 0.0]), 9.5))
def test_no_placement_within_the_limit_has_a_smaller_sum(problem: tuple[Places, numpy.ndarray, float]) -> None:
    places, base, limit = problem
    every = [times(places, base, slots) for slots in combinations(range(len(places.steps) + 1), len(base))]
    allowed = [sum(each) for each in every if max(each) <= limit]
    slots = places.least(by_levels(places, base), limit)
    if slots is None:
        assert allowed == []
        return
    seconds = by_levels(places, base)[(*places.around(slots), numpy.arange(len(base)))]
    assert list(seconds) == times(places, base, slots)
    assert max(seconds) <= limit
    assert sum(seconds) == min(allowed)


@given(problems())
def test_no_placement_is_below_the_cheapest_boundaries(problem: tuple[Places, numpy.ndarray, float]) -> None:
    places, base, _ = problem
    cheapest, _, _ = stages_of(base).anywhere(places, numpy.inf)
    for slots in combinations(range(len(places.steps) + 1), len(base)):
        assert (cheapest <= times(places, base, slots)).all()


def test_a_gap_pays_where_it_keeps_the_way_back_inside_a_group() -> None:
    """Slot 0 lies alone in a group; from slot 1 on the two stages are neighbours inside one."""
    places = Places(numpy.array([[1.0, 1.0], [8.0, 8.0]]), numpy.array([1, 0]), (0, 1), Meter())
    every = by_levels(places, numpy.zeros(2))
    assert places.least(every, numpy.inf) == (1, 2)
    assert every[(*places.around((0, 1)), [0, 1])].tolist() == [16.0, 16.0]
    assert every[(*places.around((1, 2)), [0, 1])].tolist() == [2.0, 2.0]
