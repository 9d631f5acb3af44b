"""What crosses the boundaries of a plan is what each boundary's definition says."""

from random import Random

import pytest

from nest.instance import LayerGraph, Solution, StageDecision
from nest.plan.layout import crossing
from tests.seeds import seeds
from tests.small_instances import candidate, instance


@pytest.mark.parametrize("seed", seeds(12, 200))
def test_what_crosses_is_made_in_front_and_read_behind(seed: int) -> None:
    random, layers = Random(seed), 7
    tensors = tuple(
        (each, tuple(sorted(random.sample(range(each + 1, layers), random.randint(0, min(2, layers - each - 1))))))
        for each in range(layers - 1)
    )
    graph = LayerGraph(tuple(f"l{each}" for each in range(layers)), tensors)
    problem = instance([candidate(layers, seed=seed)], graph=graph)
    # Layers that no stage holds lie outside all downsets.
    ends = sorted(random.sample(range(1, layers), random.randint(0, 4)))
    held = [tuple(range(first, last)) for first, last in zip([0, *ends], [*ends, layers - seed % 2], strict=True)]
    stages = tuple(StageDecision(each, 0, "none", 0, place) for place, each in enumerate(held))
    behind = [{layer for each in held[place:] for layer in each} for place in range(len(held) + 1)]
    expected = [
        tuple(
            index
            for index, (maker, readers) in enumerate(tensors)
            if maker not in downset and not downset.isdisjoint(readers)
        )
        for downset in behind
    ]
    found = crossing(problem, Solution(1, "pp-inner", "1f1b", stages))
    assert [front for front, _ in found] == expected[:-1]
    assert [each for _, each in found] == expected[1:]
