"""Downsets: complete, closed, and the sums and maxima over stages."""

from itertools import combinations

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.errors import InputError
from nest.instance import LayerGraph
from nest.solve.dp.downsets import LIMIT
from nest.solve.dp.sums import AlongRuns, ByValue, largest
from tests.small_instances import chain, downsets_of


@st.composite
def graphs(draw: st.DrawFn) -> LayerGraph:
    count = draw(st.integers(1, 6))
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return LayerGraph(tuple(f"l{i}" for i in range(count)), tuple((a, (b,)) for a, b in edges))


def closed_sets(graph: LayerGraph) -> set[frozenset[int]]:
    layers = range(len(graph.layers))
    return {
        frozenset(subset)
        for size in range(len(graph.layers) + 1)
        for subset in combinations(layers, size)
        if all(c in subset for p, consumers in graph.tensors if p in subset for c in consumers)
    }


@given(graphs())
def test_every_downset_once(graph: LayerGraph) -> None:
    downsets = downsets_of(graph)
    found = [frozenset(numpy.flatnonzero(row).tolist()) for row in downsets.members]
    assert len(found) == len(set(found))
    assert set(found) == closed_sets(graph)
    assert found[0] == frozenset()
    assert len(found[-1]) == len(graph.layers)


@given(graphs(), st.data())
def test_layers_and_maxima_of_stages(graph: LayerGraph, data: st.DataObject) -> None:
    downsets = downsets_of(graph)
    values = numpy.array(data.draw(st.lists(st.floats(0, 10), min_size=len(graph.layers), max_size=len(graph.layers))))
    most = largest(downsets, values).over(downsets.pairs)
    sets = [frozenset(numpy.flatnonzero(row).tolist()) for row in downsets.members]
    pairs = list(zip(downsets.pairs.larger.tolist(), downsets.pairs.smaller.tolist(), strict=True))
    assert sorted(pairs) == [(a, b) for a in range(len(sets)) for b in range(len(sets)) if sets[b] < sets[a]]
    for place, (a, b) in enumerate(pairs):
        stage = sorted(sets[a] - sets[b])
        assert downsets.between(a, b) == tuple(stage)
        assert most[place] == max(values[i] for i in stage)


@given(graphs(), st.data())
def test_least_over_the_stages_of_each_downset(graph: LayerGraph, data: st.DataObject) -> None:
    pairs = downsets_of(graph).pairs
    kept = numpy.array(data.draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs))), dtype=bool)
    values = numpy.arange(len(pairs), 0, -1, dtype=float)
    some = pairs.only(kept)
    least = some.least(values[kept])
    for index in range(pairs.count):
        mine = values[kept & (pairs.larger == index)]
        assert least[index] == (mine.min() if len(mine) else numpy.inf)
        if len(mine):
            assert values[kept][some.of_downset(index)].tolist() == mine.tolist()


@given(graphs(), st.data())
def test_groups_leave_the_downsets_that_do_not_part_them(graph: LayerGraph, data: st.DataObject) -> None:
    layers = st.integers(0, len(graph.layers) - 1)
    groups = data.draw(st.lists(st.lists(layers, min_size=2, max_size=3), max_size=2))
    found = {frozenset(numpy.flatnonzero(row).tolist()) for row in downsets_of(graph, groups).members}
    assert found == {s for s in closed_sets(graph) if all(set(group) <= s or not set(group) & s for group in groups)}


def test_layers_kept_together_do_not_count_against_the_limit() -> None:
    side_by_side = LayerGraph(tuple(f"l{i}" for i in range(30)), ())
    assert downsets_of(side_by_side, together=[range(25)]).count == 2**6


@pytest.mark.parametrize("partition", [[(1,), (0, 2)], [(0,), (1,)], [(0, 1), (1, 2)]])
def test_a_wrong_partition_is_refused(partition: list[tuple[int, ...]]) -> None:
    with pytest.raises(InputError, match=r"fixed\.stages"):
        downsets_of(chain(3), partition=partition)


def test_too_many_downsets_are_refused_with_the_limit() -> None:
    side_by_side = LayerGraph(tuple(f"l{i}" for i in range(30)), ())
    with pytest.raises(InputError, match=str(LIMIT)):
        downsets_of(side_by_side)


@given(st.lists(st.floats(0.0, 100.0), min_size=2, max_size=40), st.booleans())
def test_the_largest_of_a_stage_is_found_alike_by_runs_and_by_values(values: list[float], empty: bool) -> None:
    downsets = downsets_of(chain(len(values)))
    if empty:
        downsets = downsets.with_empty_stages(1)
    costs, pairs = numpy.array(values), downsets.pairs
    expected = [
        max((values[layer] for layer in downsets.between(int(larger), int(smaller))), default=0.0)
        for larger, smaller in zip(pairs.larger, pairs.smaller, strict=True)
    ]
    for found in (largest(downsets, costs), *(way.of(downsets.members, costs) for way in (ByValue, AlongRuns))):
        assert found.over(pairs).tolist() == expected
