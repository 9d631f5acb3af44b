"""Cuts and the stages between them, against sets of layers written out."""

from random import Random

import numpy
import pytest

from nest.instance import LayerGraph
from nest_cpsat.cuts import Cuts, list_cuts
from tests.oracle.partitions import closed_under_successors, subsets
from tests.small_instances import candidate, instance


def random_graph(seed: int) -> LayerGraph:
    random = Random(seed)
    count = random.randint(1, 6)
    order = random.sample(range(count), count)
    tensors = []
    for place, producer in enumerate(order[:-1]):
        later = order[place + 1 :]
        consumers = random.sample(later, random.randint(0, min(2, len(later))))
        if consumers:
            tensors.append((producer, tuple(consumers)))
    return LayerGraph(tuple(f"l{i}" for i in range(count)), tuple(tensors))


@pytest.mark.parametrize("seed", range(40))
def test_cuts_are_the_sets_closed_under_successors(seed: int) -> None:
    graph = random_graph(seed)
    count = len(graph.layers)
    problem = instance([candidate(count, tensors=len(graph.tensors), seed=seed)], graph=graph)
    cuts = list_cuts(problem, 100)
    assert cuts is not None
    edges = [(producer, consumer) for producer, consumers in graph.tensors for consumer in consumers]
    expected = {frozenset(s) for s in [(), *subsets(range(count))] if closed_under_successors(set(s), edges)}
    found = [frozenset(numpy.nonzero(row)[0].tolist()) for row in cuts.behind]
    assert set(found) == expected
    assert len(found) == len(expected)
    assert found[0] == frozenset(range(count))
    assert found[-1] == frozenset()
    stages = {(found[a], found[b]) for a, b in zip(cuts.first, cuts.last, strict=True)}
    assert stages == {(one, two) for one in expected for two in expected if two < one}
    used = problem.candidates[0]
    sums, largest = cuts.sums(used.forward), cuts.largest(used.forward)
    for a, b, total, most in zip(cuts.first, cuts.last, sums, largest, strict=True):
        layers = sorted(found[a] - found[b])
        assert total == pytest.approx(used.forward[layers].sum(), rel=1e-12)
        assert most == used.forward[layers].max()
    for behind, crossing in zip(found, cuts.bytes(graph, used), strict=True):
        cut = [
            size
            for (producer, consumers), size in zip(graph.tensors, used.tensor_bytes, strict=True)
            if producer not in behind and behind & set(consumers)
        ]
        assert crossing == pytest.approx(sum(cut))


@pytest.mark.parametrize("endless", [None, 3])
def test_stages_of_a_chain_add_up_as_those_of_any_graph(endless: int | None) -> None:
    cuts = list_cuts(instance([candidate(7)], constraints=['same_stage("l1", "l2")']), 100)
    assert cuts is not None
    turned = cuts.count - 1
    others = Cuts(cuts.behind[::-1], turned - cuts.first, turned - cuts.last)
    values = numpy.array([0.1, 0.2, 1e-9, 3e5, 0.7, 0.0, 11.0])
    if endless is not None:
        values[endless] = numpy.inf
    assert cuts.sums(values) == pytest.approx(others.sums(values), rel=1e-12)
    assert cuts.largest(values).tolist() == others.largest(values).tolist()


def test_layers_kept_together_are_not_parted() -> None:
    problem = instance([candidate(5)], constraints=['same_stage("l1", "l2")'], together=((3, 4),))
    cuts = list_cuts(problem, 100)
    assert cuts is not None
    assert cuts.behind.sum(axis=1).tolist() == [5, 4, 2, 0]
