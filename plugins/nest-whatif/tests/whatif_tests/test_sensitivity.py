"""Sensitivity: the plan kept by the oracle's prices, the best by its search, and what must hold between them."""

from typing import Any

import pytest

from nest import api
from nest.hooks.registry import registry
from nest.io import structure
from nest.spec import PlanDocument, Problem
from nest.whatif.parameters import parameters
from nest.whatif.solver import Solver
from nest_whatif.sensitivity import FACTORS, responses
from tests.oracle.brute_force import solve
from tests.oracle.check import plan_of, same
from tests.oracle.price import price, violations
from tests.whatif.small import solved

MODEL: dict[str, Any] = {
    "nest": 1,
    "model": {"transformer": {"layers": 3, "hidden": 1024, "ffn": 4096, "heads": 8, "vocab": 4096}},
    "training": {"global_batch": 16, "sequence_length": 512, "micro_batch": [1, 2], "overlap": {"data": True}},
    "cluster": {
        "device": "h100-sxm",
        "levels": [
            {"name": "node", "fanout": 4, "bandwidth": 450e9, "link": "nvlink"},
            {"name": "rack", "fanout": 2, "bandwidth": 5e10, "link": "infiniband"},
        ],
        "memory": 8e9,
    },
}


@pytest.fixture(scope="module")
def model_plan() -> PlanDocument:
    return api.solve({**MODEL, "search": {**MODEL.get("search", {}), "within": 0}})


@pytest.mark.longer
@pytest.mark.parametrize("kind", ["plain", pytest.param("mixed", marks=pytest.mark.slow), "chunked"])
def test_kept_and_best_are_what_the_oracle_says(kind: str) -> None:
    seen: set[tuple[bool, bool]] = set()
    for plan, problem, solver in solved(range(5), kind):
        assert plan.batch_time is not None
        by_name = {each.name: each for each in parameters(problem, solver.plugins)}
        for response in responses(plan, solver):
            parameter = by_name[response.parameter]
            assert (response.value, response.unit) == (parameter.value * response.factor, parameter.unit)
            changed = parameter.changed(problem, response.value).to_dict()
            scale = plan.batch_time * (response.factor if response.unit == "samples" else 1.0)
            answer = solve(changed).batch_time
            assert same(
                None if response.best is None else response.best + 1, None if answer is None else answer / scale
            )
            decided = plan_of(plan.to_dict())
            # A smaller batch leaves out candidates of more samples, and with them plans that use one.
            offered = {each["name"] for each in changed["profile"]["candidates"]}
            legal = {each["candidate"] for each in decided["stages"]} <= offered and not violations(changed, decided)
            priced = price(changed, decided) if legal else {"fits": False}
            kept = priced["batch_time"] / scale - 1 if priced["fits"] else None
            assert (response.kept is None) == (kept is None)
            if kept is not None and response.kept is not None:
                assert abs(response.kept - kept) < 1e-9
            seen.add((response.kept is None, response.changed))
    assert {(False, False), (True, True)} <= seen


@pytest.mark.longer
def test_each_number_of_a_model_is_asked_about(model_plan: PlanDocument) -> None:
    found = responses(model_plan, Solver(registry()), factors=(2.0,))
    assert [each.parameter for each in found] == [
        "bandwidth of node (nvlink4)",
        "bandwidth of rack",
        "memory",
        "peak compute",
        "devices",
        "global batch",
    ]


@pytest.mark.longer
def test_what_is_implied_is_not_solved_and_is_what_solving_says(model_plan: PlanDocument) -> None:
    problem = structure(model_plan.problem, Problem)
    solver = Solver(registry())
    answers = responses(model_plan, solver, factors=(0.5, 2.0))
    assert solver.solves < len(answers)
    assert model_plan.batch_time is not None
    by_name = {each.name: each for each in parameters(problem, solver.plugins)}
    for response in answers:
        best = api.solve(by_name[response.parameter].changed(problem, response.value)).batch_time
        scale = model_plan.batch_time * (response.factor if response.unit == "samples" else 1.0)
        assert best is not None
        assert response.best is not None
        assert abs(response.best + 1 - best / scale) < 1e-9


def test_of_an_infeasible_plan_nothing_is_said() -> None:
    plan, _, solver = next(solved(range(60), feasible=False))
    assert responses(plan, solver) == ()


def test_the_usual_factors_are_inverse_to_each_other() -> None:
    assert sorted(1 / factor for factor in FACTORS) == sorted(FACTORS)
