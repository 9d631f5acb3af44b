"""What stages are cut between."""

from attrs import evolve
from hypothesis import given, strategies

from nest.planners.shapes import even_cuts, interleaved, partition, units
from nest.spec.constraints import parse
from tests.planners.instances import candidate, planned, problem


def instance(**keys):
    return planned("manual", problem(1e12, candidate(1), **keys))[0]


@given(count=strategies.integers(1, 60), stages=strategies.integers(1, 60))
def test_even_stages_differ_by_one_at_most(count, stages):
    stages = min(stages, count)
    pieces = tuple((index,) for index in range(count))
    sizes = [len(layers) for layers in partition(pieces, even_cuts(count, stages))]
    assert len(sizes) == stages
    assert sum(sizes) == count
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


def test_layers_of_one_stage_are_one_unit_with_all_between_them():
    made = instance()
    kept = evolve(made, space=evolve(made.space, blocks=(), together=((2, 4),), constraints=(parse("pp <= 4"),)))
    assert units(kept) == ((0,), (1,), (2, 3, 4), (5,), (6,), (7,))


def test_blocks_are_units():
    made = instance()
    blocks = ((0, 1), (2, 3), (4, 5), (6, 7))
    assert units(evolve(made, space=evolve(made.space, blocks=blocks))) == blocks


def test_chunks_are_interleaved():
    made = instance()
    assert interleaved(made, 2, 2) == ((0, 1, 4, 5), (2, 3, 6, 7))
    assert interleaved(made, 3, 2) is None
    assert interleaved(made, 1, 2) is None
