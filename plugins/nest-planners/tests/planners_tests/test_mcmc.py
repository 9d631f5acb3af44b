"""The random walk: the same for the same seed, and at the optimum where there is little to find."""

import pytest

import nest
from planners_tests.instances import LAYERS, candidate, planned, problem


@pytest.mark.longer
@pytest.mark.parametrize("seed", range(3))
def test_the_same_seed_gives_the_same_plan(seed):
    first, second = (planned("mcmc", problem(2e9, zero=(0, 1)), seed=seed)[1] for _ in range(2))
    assert first == second


@pytest.mark.longer
def test_it_keeps_to_its_number_of_evaluations():
    for evaluations in (1, 7, 50):
        _, proposal, _ = planned("mcmc", problem(2e9, zero=(0, 1)), evaluations=evaluations)
        assert int(proposal.remarks[0].split()[0]) == evaluations


@pytest.mark.longer
def test_it_finds_the_best_of_few_plans():
    written = problem(1e12, candidate(4), zero=(0,))
    _, _, seen = planned("mcmc", written, evaluations=1000)
    assert seen.priced.batch_time == pytest.approx(nest.solve(written).batch_time, rel=1e-9)


@pytest.mark.longer
def test_it_goes_on_elsewhere_where_a_plan_that_does_not_fit_holds_it():
    """Wide blocks are quick and a little too large; all plans that fit are far slower and many changes away."""
    wide, narrow = candidate(16), candidate(1)
    wide["recompute"]["full"] = wide["recompute"]["none"]
    wide["state"]["dense"]["optimizer"] = [2e9] * LAYERS
    narrow["forward"] = [each * 30 for each in narrow["forward"]]
    for seed in range(4):
        _, proposal, seen = planned("mcmc", problem(1.5e10, wide, narrow, constraints=["replicas == 1"]), seed=seed)
        assert seen.admitted, (seed, proposal.remarks)


def test_no_plan_is_explained():
    _, proposal, _ = planned("mcmc", problem(1e12, constraints=["pp > 100"]), evaluations=20)
    assert proposal.solution is None
    assert "none of the" in proposal.remarks[0]


def test_they_are_not_the_same_walk():
    found = {name: planned(name, problem(1e12), evaluations=9, seed=3)[1].solution for name in ("mcmc", "random")}
    assert found["mcmc"] != found["random"]
