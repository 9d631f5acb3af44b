"""Graphs with too many cuts to list: never a false proof, and exact where collectives cost nothing."""

import sys
from random import Random
from typing import Any

import pytest

import nest
from nest.formulate.instance import build_instance
from nest.hooks.registry import registry
from nest.instance import Solution
from nest.io import structure
from nest.plan.evaluate import evaluate
from nest.spec import Problem
from nest_cpsat import Price
from nest_cpsat import verify as ask
from tests.agreement.problems import random_problem
from tests.oracle.brute_force import solve
from tests.oracle.document import document_of
from tests.seeds import seeds


@pytest.fixture
def layers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No graph has few enough cuts."""
    monkeypatch.setattr(sys.modules[ask.__module__], "MOST_CUTS", 0)


def verdict(problem: dict[str, Any], batch_time: float) -> Any:
    """What is said of the optimal plan, were its step time this one."""
    instance = build_instance(structure(problem, Problem), registry())

    def pricing(solution: Solution) -> Price:
        priced = evaluate(instance, solution)
        return Price(priced.batch_time, priced.overfull)

    return ask(instance, batch_time, pricing)


@pytest.mark.usefixtures("layers_alone")
@pytest.mark.parametrize("seed", seeds(15, 60, long=[1]))
def test_it_never_contradicts_brute_force(seed: int) -> None:
    problem = random_problem(Random(seed))
    best = solve(problem).batch_time
    if best is None:
        refused = nest.solve(problem, verify=True)
        assert (refused.verification or {})["status"] == "proved"
        return
    assert verdict(problem, best).status in ("proved", "open")
    found = verdict(problem, best * 1.3)
    assert found.status in ("refuted", "open")
    assert found.bound <= best
    assert found.better_batch_time is None or found.better_batch_time >= best * (1 - 1e-9)
    assert not found.settled or found.better_batch_time == pytest.approx(best, rel=2e-6)


@pytest.mark.longer
@pytest.mark.usefixtures("layers_alone")
@pytest.mark.parametrize("seed", seeds(6, 60))
def test_it_proves_the_optimum_where_collectives_are_hidden(seed: int) -> None:
    problem = random_problem(Random(seed + 100))
    problem["training"] |= {"exposed": 0.0, "hiding": False}
    answer = solve(problem)
    if answer.batch_time is None:
        return
    plan = document_of(problem, answer.plan) | {"verification": None}
    for stage in plan["stages"]:
        del stage["offset"]
    assert nest.verify(plan).status == "proved"
    found = verdict(problem, answer.batch_time * 1.3)
    assert found.status == "refuted"
    assert found.better_batch_time == pytest.approx(answer.batch_time, rel=2e-6)
