"""Questions price candidates as far as their answers need them, and answer as if all were priced."""

from random import Random

import pytest
from attrs import evolve

import nest
from nest.formulate import candidates
from nest.formulate.instance import Wanted, build_instance
from nest.formulate.kept_model import LASTING
from nest.formulate.problem import self_contained
from nest.hooks.registry import registry
from nest.instance import Instance
from nest.solve.solver import solve
from nest.spec import Problem
from nest.whatif.parameters import parameters
from nest.whatif.solver import Solver
from tests.formulate.test_worth import random_experts
from tests.seeds import seeds


def asked(random: Random) -> tuple[Problem, float]:
    """A problem that has a plan, and its step time."""
    while True:
        problem = self_contained(random_experts(random), None, registry())
        problem = evolve(problem, search=evolve(problem.search, within=0.0))
        plan = nest.solve(problem)
        if plan.batch_time:
            return problem, plan.batch_time


def price_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on few candidates are priced at first, of none of which the process keeps the price."""
    registry().take(LASTING)
    monkeypatch.setattr(candidates, "MANY", 1)


def among(instance: Instance) -> set[str]:
    return {each.name for each in instance.candidates}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_explanations_are_those_of_all_candidates(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = nest.solve(asked(Random(f"explained {seed}"))[0])
    parts = ("constraints", "alternatives", "flips")
    every = nest.explain(plan, only=parts, jobs=1).to_dict()
    price_few(monkeypatch)
    some = nest.explain(plan, only=parts, jobs=1).to_dict()
    assert {**some, "solves": 0} == {**every, "solves": 0}


@pytest.mark.parametrize("seed", seeds(3, 60, now=(2,)))
def test_what_has_a_slower_answer_is_asked_again(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans without what the best plan decides, and with more samples, as if all candidates were priced."""
    problem, _ = asked(Random(f"asked again {seed}"))
    best, every = nest.solve(problem), Solver()
    assert best.candidate is not None
    degrees = {"tp": 1, "ep": 1, "cp": 1, **best.candidate.degrees}
    ruled = [f"{name} != {degree}" for name, degree in degrees.items()]
    changed = [evolve(problem, constraints=(each,)) for each in (*ruled, " and ".join(ruled))]
    changed.append(evolve(problem, training=evolve(problem.training, global_batch=4 * problem.training.global_batch)))
    expected = [every.plan(each) for each in changed]
    price_few(monkeypatch)
    solver = Solver()
    solver.know(problem, best)
    for each, plan in zip(changed, expected, strict=True):
        found = solver.plan(each)
        assert (found is None) == (plan is None)
        if found is not None and plan is not None:
            mine, its = ((p.status, p.batch_time, p.stages, p.diagnosis) for p in (found, plan))
            assert mine == its


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(3, 60))
def test_floors_are_those_of_all_candidates(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    known, (problem, best) = registry(), asked(Random(f"floors {seed}"))
    plan, every, some = nest.solve(problem), Solver(known), Solver(known)
    for solver, many in ((every, candidates.MANY), (some, 1)):
        registry().take(LASTING)
        monkeypatch.setattr(candidates, "MANY", many)
        solver.know(problem, plan)
        solver.instance(problem, complete=False)
    for parameter in parameters(problem, known):
        for factor in (0.5, 1.2, 4.0):
            of_all, of_some = (each.floors(problem, parameter, factor) for each in (every, some))
            assert (of_all is None) == (of_some is None)
            if of_all is not None and of_some is not None:
                for seconds in (0.3 * best, best, 2 * best):
                    assert {*of_some(seconds)} == {*of_all(seconds)}


@pytest.mark.longer
def test_an_answer_beyond_what_is_complete_is_not_called_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    known, found = registry(), 0
    price_few(monkeypatch)
    for number in range(2):
        problem, best = asked(Random(f"beyond {number}"))
        instance = build_instance(problem, known, Wanted(step_time_limit=best * 0.9))
        result = solve(instance, runner_up=False)
        if instance.complete or result.batch_time is None or result.batch_time <= instance.complete_to:
            continue
        assert result.status == "feasible"
        assert result.lower_bound is not None
        assert result.lower_bound <= min(instance.complete_to, best)
        found += 1
    assert found
