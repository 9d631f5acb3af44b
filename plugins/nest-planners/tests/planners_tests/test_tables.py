"""What planners of splits count of a stage."""

import numpy
import pytest
from attrs import evolve

from nest_planners.shapes import units
from nest_planners.tables import StageTable, cut_bytes, sharded_state, stage_table
from planners_tests.instances import candidate, planned, problem


@pytest.fixture(scope="module")
def instance():
    return planned("recipe", problem(1e12, candidate(1), zero=(0, 1, 2, 3)))[0]


@pytest.mark.parametrize(("zero", "shared"), [(0, ()), (1, ("optimizer",)), (2, ("optimizer", "gradients"))])
def test_a_zero_stage_shards_what_it_says(instance, zero, shared):
    (group,) = instance.candidates[0].state
    parts = {name: getattr(group, name) for name in ("weights", "gradients", "optimizer")}
    expected = sum(size / (4 if name in shared else 1) for name, size in parts.items())
    assert sharded_state(instance.candidates[0], 4, zero) == pytest.approx(expected)


def test_the_first_micro_batch_in_flight_is_part_of_what_is_fixed():
    one = numpy.array([[10.0]])
    table = StageTable(one, one, 5.0 * numpy.ones((1, 1)), 20.0)
    assert table.fits(3)
    assert not table.fits(4)


def test_inputs_that_are_kept_for_recomputation_count_for_each_further_micro_batch(instance):
    each, pieces = instance.candidates[0], units(instance)
    bare, kept = (evolve(each.mode("full"), stash_inputs=stashed) for stashed in (False, True))
    tables = [stage_table(instance, pieces, each, mode, 0, 1) for mode in (bare, kept)]
    more = (tables[1].further - tables[0].further)[:, -1]
    assert more == pytest.approx(cut_bytes(instance, pieces, each))
    assert more[1:-1].min() > 0
