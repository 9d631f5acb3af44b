"""Clusters: levels, shapes, admissible widths."""

import numpy
from hypothesis import given
from hypothesis import strategies as st

from nest.instance import Cluster, Level

FANOUTS = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def build(fanouts: list[int]) -> Cluster:
    return Cluster(tuple(Level(f"l{i}", f, 1.0, 0.0) for i, f in enumerate(fanouts)), 1.0)


@given(FANOUTS, st.data())
def test_level_is_the_innermost_common_group(fanouts: list[int], data: st.DataObject) -> None:
    machines = build(fanouts)
    first = data.draw(st.integers(0, machines.size - 1))
    last = data.draw(st.integers(0, machines.size - 1))
    level = machines.level(first, last)
    for index, capacity in enumerate(machines.capacities):
        assert (first // capacity == last // capacity) == (index >= level)


def test_shape_of_aligned_and_ragged_sets() -> None:
    machines = build([2, 2, 2])
    assert machines.shape(range(8)) == (2, 2, 2)
    assert machines.shape([0, 2, 4, 6]) == (1, 2, 2)
    assert machines.shape([0, 1, 2]) == (2, 2, 1)
    assert machines.shape([5]) == (1, 1, 1)


@given(FANOUTS, st.data())
def test_shape_bounds_the_members(fanouts: list[int], data: st.DataObject) -> None:
    machines = build(fanouts)
    members = data.draw(st.sets(st.integers(0, machines.size - 1), min_size=1))
    shape = machines.shape(members)
    product = 1
    for entry, fanout in zip(shape, fanouts, strict=True):
        assert 1 <= entry <= fanout
        product *= entry
    assert product >= len(members)


@given(FANOUTS, st.data())
def test_the_shapes_of_several_sets_are_each_met_once(fanouts: list[int], data: st.DataObject) -> None:
    machines = build(fanouts)
    size = data.draw(st.integers(1, machines.size))
    draw = st.sets(st.integers(0, machines.size - 1), min_size=size, max_size=size).map(sorted)
    sets = data.draw(st.lists(draw, min_size=1, max_size=4))
    assert machines.shapes(numpy.array(sets)) == tuple(dict.fromkeys(map(machines.shape, sets)))


def test_admissible_widths() -> None:
    machines = build([8, 4])
    assert [width for width in range(1, 40) if machines.admits(width)] == [1, 2, 4, 8, 16, 32]
    assert not build([2, 3]).admits(3)
