"""Chains on which Galvatron's recurrence, layer by layer, is never faster than `nest solve`."""

from math import inf

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


@pytest.mark.longer
def test_it_is_faster_than_stages_that_recompute_all_or_nothing():
    """In some chains, by some percent: what nest leaves behind where `search.recompute_layers` is off."""
    gains = []
    for seed in (0, 11, 12, 24):
        problem = random_chain(seed)
        seconds, _ = best(problem)
        problem["search"]["recompute_layers"] = False
        gains.append(nest.solve(problem).batch_time / seconds)
    assert min(gains) > 1.05
    assert max(gains) < inf
