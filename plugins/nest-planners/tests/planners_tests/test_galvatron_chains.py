"""Chains on which Galvatron's recurrence, layer by layer, is never faster than `nest solve`."""

import pytest

import nest
from planners_tests.galvatron_recurrence import best, random_chain
from tests.seeds import seeds

ROUNDING = 1e-9


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(24, 160))
def test_galvatron_is_never_faster(seed):
    problem = random_chain(seed)
    seconds, plan = best(problem)
    found = nest.solve(problem)
    if plan is not None:
        assert found.status == "optimal"
        assert found.batch_time <= seconds * (1 + ROUNDING)
