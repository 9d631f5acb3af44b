"""The slots that stages may have, and the levels between them."""

from itertools import combinations, pairwise

from hypothesis import given
from hypothesis import strategies as st

from nest.solve.dp.places import Graph, SlotPlaces


@st.composite
def slots(draw: st.DrawFn) -> tuple[int, ...]:
    """Levels between slots: nested groups that are mostly alike."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    offset, count = draw(st.integers(0, 3)) * draw(st.booleans()), draw(st.integers(1, 12))
    steps = []
    for place in range(offset + 1, offset + count):
        level = 0
        for size in sizes:
            if place % size:
                break
            place, level = place // size, level + 1
        steps.append(level)
    return tuple(steps)


@given(slots(), st.integers(1, 6))
def test_what_follows_is_every_row_of_levels_in_its_first_slots(steps: tuple[int, ...], stages: int) -> None:
    stages = min(stages, len(steps) + 1)
    first: dict[tuple[int, ...], tuple[int, ...]] = {}
    for chosen in combinations(range(len(steps) + 1), stages):
        first.setdefault(tuple(max(steps[one:other]) for one, other in pairwise(chosen)), chosen)
    placed = Graph(SlotPlaces(steps, stages), stages)
    found = {((), (slot,)) for slot, _ in placed.numbers[-1]}
    for stage in range(stages, 1, -1):
        found = {
            ((*levels, level), (*taken, slot))
            for levels, taken in found
            for level, _, slot, _ in placed.following(taken[-1], stage)
        }
    assert {levels for levels, _ in found} == set(first)
    for levels, taken in first.items():
        assert min(slots for of, slots in found if of == levels) == taken
        assert _follows(placed, levels)


def _follows(placed: Graph, levels: tuple[int, ...]) -> bool:
    """Whether a row of levels is one of those that surroundings lead to."""
    known, front = set(placed.numbers[-1].values()), 0
    for stage, behind in zip(range(placed.stages, 0, -1), (*levels, 0), strict=True):
        every = [placed.surroundings[stage - 1][number] for number in known]
        assert all(level == front for _, level, _ in every)
        known, front = (
            {number for _, _, ways in every for out, some in ways if out == behind for number in some},
            behind,
        )
    return bool(known)
