"""What crosses all cuts of a plan at once is what crosses each of them."""

from random import Random

import pytest

from nest.instance import LayerGraph
from nest.plan.layout import cut_bytes, cut_sizes
from tests.seeds import seeds
from tests.small_instances import candidate, instance


@pytest.mark.parametrize("seed", seeds(12, 200))
def test_all_cuts_of_a_plan_have_the_sizes_of_each(seed: int) -> None:
    random, layers = Random(seed), 7
    tensors = tuple(
        (each, tuple(sorted(random.sample(range(each + 1, layers), random.randint(0, min(2, layers - each - 1))))))
        for each in range(layers - 1)
    )
    one = candidate(layers, seed=seed)
    graph = LayerGraph(tuple(f"l{each}" for each in range(layers)), tensors)
    problem = instance([one], graph=graph)
    # Layers that no chunk holds lie outside all downsets.
    ends = sorted(random.sample(range(1, layers), random.randint(0, 4)))
    chunks = [tuple(range(first, last)) for first, last in zip([0, *ends], [*ends, layers - seed % 2], strict=True)]
    found = cut_sizes(problem, one, chunks)
    behind = [frozenset(layer for held in chunks[place:] for layer in held) for place in range(len(chunks) + 1)]
    assert found == [cut_bytes(problem, one, downset) for downset in behind]
