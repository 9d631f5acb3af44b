"""What stages are cut between."""

from attrs import evolve, frozen
from hypothesis import given, strategies

from nest.schedules.interleaved import Interleaved
from nest.spec.constraints import parse
from nest_planners.shapes import dealt, even_cuts, partition, units
from planners_tests.instances import candidate, planned, problem


def instance(**keys):
    return planned("manual", problem(1e12, candidate(1), **keys))[0]


@given(count=strategies.integers(1, 60), stages=strategies.integers(1, 60))
def test_even_stages_differ_by_one_at_most(count, stages):
    stages = min(stages, count)
    pieces = tuple((index,) for index in range(count))
    sizes = [len(layers) for (layers,) in partition(pieces, even_cuts(count, stages))]
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


@frozen
class Up:
    """Down the stages and up again."""

    chunks = 2
    placement = "v"
    name = "up"

    def weights(self, micro_batches, stages):
        return 1.0, 1.0

    def in_flight(self, stage, stages, micro_batches):
        return 1


def test_chunks_lie_where_the_schedule_says():
    made = instance()
    round_ = Interleaved()
    assert dealt(made, round_, 2) == (((0, 1), (4, 5)), ((2, 3), (6, 7)))
    assert dealt(made, Up(), 2) == (((0, 1), (6, 7)), ((2, 3), (4, 5)))
    assert dealt(made, round_, 1) is None
    assert dealt(made, round_, 5) is None


def test_chunks_differ_by_a_block_where_the_framework_has_uneven_ones():
    made = instance()
    assert dealt(made, Interleaved(), 3) == (((0, 1), (5,)), ((2, 3), (6,)), ((4,), (7,)))
    assert dealt(evolve(made, space=evolve(made.space, even=True)), Interleaved(), 3) is None


def test_embedding_and_head_are_chunks_where_only_they_make_them_even():
    made = instance()
    joined = ((0, 1), (2,), (3,), (4,), (5,), (6, 7))
    whole = evolve(made.space, blocks=joined, blocks_and_ends=tuple((layer,) for layer in range(8)))
    assert dealt(evolve(made, space=whole), Interleaved(), 4) == tuple(((s,), (s + 4,)) for s in range(4))
