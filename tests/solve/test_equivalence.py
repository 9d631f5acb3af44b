"""Stages of one class cost the same, and tables kept per class hold what tables kept per stage hold."""

from typing import Any

import numpy
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from nest.instance import Candidate, Instance, LayerGraph, ParameterGroup, RecomputeMode
from nest.solve.dp.downsets import classified_pairs
from nest.solve.dp.listing import configurations
from nest.solve.dp.pairs import Pairs
from nest.solve.dp.plain import PlainSearch
from nest.solve.dp.units import Splits
from tests.small_instances import chain, downsets_of, instance


def repeated(models: list[int], tensors: int, sizes: list[int], *, seed: int = 0) -> Candidate:
    """A candidate whose layers cost what their model costs, and whose tensors are of the sizes given in turn."""
    draw = numpy.random.default_rng(seed)
    figures = draw.uniform(0.5, 2.0, (9, max(models) + 1))[:, models]
    forward, held, weights, gradients, optimizer, update, extra, more, peak = figures
    sizes_in_turn = [float(sizes[index % len(sizes)]) for index in range(tensors)]
    return Candidate(
        name=f"c{seed}",
        degrees={},
        width=1,
        samples=1,
        forward=forward,
        backward=2 * forward,
        state=(ParameterGroup("dense", (0,), weights, gradients, optimizer, update),),
        recompute=(
            RecomputeMode("none", numpy.zeros(len(models)), 3 * held, 3 * held, peak),
            RecomputeMode("full", extra, held, more, 2 * peak, stash_inputs=True),
        ),
        tensor_bytes=sizes_in_turn,
    )


def with_ports(candidate: Candidate) -> Candidate:
    """The same with ports that every layer keeps busy alike, on the two levels of small clusters."""
    busy = numpy.ones((2, len(candidate.forward)))
    modes = tuple(evolve(mode, busy=busy / 2) for mode in candidate.recompute)
    return evolve(candidate, busy=busy, recompute=modes)


@st.composite
def repeating(draw: st.DrawFn) -> Instance:
    models = draw(st.lists(st.integers(0, 2), min_size=2, max_size=9))
    count = len(models)
    if draw(st.booleans()):
        graph = chain(count)
    else:
        ends = [(a, b) for a in range(count) for b in range(a + 1, count)]
        edges = draw(st.lists(st.sampled_from(ends), unique=True, max_size=10))
        graph = LayerGraph(tuple(f"l{i}" for i in range(count)), tuple((a, (b,)) for a, b in edges))
    sizes = draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    candidates = [repeated(models, len(graph.tensors), sizes, seed=seed) for seed in range(draw(st.integers(1, 2)))]
    return instance(candidates, graph=graph, schedules=("1f1b", "gpipe"))


@pytest.mark.longer
@given(repeating())
def test_tables_per_class_hold_what_tables_per_stage_hold(problem: Instance) -> None:
    downsets = downsets_of(problem.graph)
    found, _ = configurations(problem, len(problem.graph.layers), Splits(problem).counts)
    by_class, plain = PlainSearch(problem, found, downsets), PlainSearch(problem, found, downsets)
    plain.shared["pairs"] = downsets.pairs
    for configuration in found[:: max(1, len(found) // 4)]:
        mine, theirs = by_class.all_tables(configuration), plain.all_tables(configuration)
        assert mine.choices == theirs.choices
        assert (mine.pairs.larger == theirs.pairs.larger).all()
        assert (mine.pairs.smaller == theirs.pairs.smaller).all()
        for one, other in zip(mine.tables, theirs.tables, strict=True):
            for name in ("time", "sync", "first", "more"):
                assert mine.pairs.spread(getattr(one, name)) == pytest.approx(getattr(other, name), rel=1e-9)


def test_a_thousand_equal_blocks_leave_a_class_per_length_and_end() -> None:
    """Stages that begin with the first block receive nothing, which sets them apart; so do the first and last layer."""
    blocks = 40
    models = [0, *[1] * blocks, 2]
    problem = instance([repeated(models, len(models) - 1, [8])])
    pairs = classified_pairs(problem, downsets_of(problem.graph))
    assert len(pairs) == (blocks + 2) * (blocks + 3) // 2
    assert len(pairs.distinct) < 4 * (blocks + 2)


def test_layers_that_differ_in_one_candidate_only_are_different() -> None:
    same, apart = repeated([0] * 8, 7, [5], seed=0), repeated(list(range(8)), 7, [5], seed=1)
    graph = chain(8)
    assert classified_pairs(instance([same], graph=graph), downsets_of(graph)).classes is not None
    assert classified_pairs(instance([same, apart], graph=graph), downsets_of(graph)).classes is None


FIGURES = (
    *(("", name) for name in ("forward", "backward", "busy")),
    *(("state", name) for name in ("weights", "gradients", "optimizer", "update")),
    *(("recompute", name) for name in ("extra", "first", "more", "peak", "busy")),
)


@pytest.mark.parametrize(("part", "name"), FIGURES)
def test_layers_of_which_any_figure_differs_are_of_two_classes(part: str, name: str) -> None:
    same = with_ports(repeated([0] * 12, 11, [5]))
    last = numpy.arange(12) == 11
    holder: Any = getattr(same, part)[-1] if part else same
    changed = evolve(holder, **{name: getattr(holder, name) + last})
    apart = evolve(same, **{part: (*getattr(same, part)[:-1], changed)}) if part else changed
    alike, different = (classified_pairs(instance([each]), downsets_of(chain(12))).distinct for each in (same, apart))
    assert len(different) > len(alike)


def test_tensors_that_differ_set_stages_apart() -> None:
    graph = chain(12)
    alike, different = (repeated([0] * 12, 11, sizes) for sizes in ([5], [5, 6]))
    counts = [len(classified_pairs(instance([each]), downsets_of(graph)).distinct) for each in (alike, different)]
    assert counts[0] < counts[1]


@given(st.lists(st.integers(0, 40), min_size=10, max_size=10), st.data())
def test_pairs_keep_their_class_when_some_go(codes: list[int], data: st.DataObject) -> None:
    """Whether the codes lie close together or far apart."""
    scale = data.draw(st.sampled_from([1, 2**40]))
    plain = downsets_of(chain(4)).pairs
    pairs = plain.classified(numpy.array(codes, dtype=numpy.int64) * scale)
    values = numpy.arange(len(pairs.distinct), dtype=float)
    if pairs.classes is None:
        assert len(set(codes)) * 2 > len(codes)
        return
    assert sorted(set(zip(codes, pairs.spread(values).tolist(), strict=True))) == list(
        zip(sorted(set(codes)), values.tolist(), strict=True)
    )
    assert [pairs.class_of(pair) for pair in range(len(pairs))] == pairs.classes.tolist()
    kept = numpy.array(data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values))), dtype=bool)
    some = pairs.only_classes(kept)
    left = kept[pairs.classes]
    assert isinstance(some, Pairs)
    assert some.larger.tolist() == pairs.larger[left].tolist()
    assert some.spread(values[kept]).tolist() == pairs.spread(values)[left].tolist()
