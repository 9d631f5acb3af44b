"""Prices of restrictions: what is best without one is what the oracle says, and never slower than with it."""

import pytest
from attrs import evolve

from nest import api
from nest.hooks.registry import registry
from nest.io import structure
from nest.spec import Problem
from nest_whatif.shadow_prices import relaxations, shadow_price
from tests.oracle.brute_force import solve
from tests.oracle.check import same
from tests.whatif.small import solved


@pytest.mark.longer
@pytest.mark.parametrize("feasible", [True, False])
def test_prices_are_what_the_oracle_finds(feasible: bool) -> None:
    places: set[str] = set()
    for plan, problem, solver in solved(range(10), feasible=feasible):
        for each in relaxations(problem, solver.plugins):
            found = shadow_price(plan, problem, each, solver)
            expected = solve(each.problem.to_dict())
            time = None if found.outcome.plan is None else found.outcome.plan.batch_time
            assert same(time, expected.batch_time), each.place
            assert (found.outcome.refusal is None) == (time is not None)
            places |= {each.place.partition("[")[0]} if found.costs else set()
            if plan.batch_time is not None:
                assert time is not None  # The plan is still one without the restriction.
                assert time <= plan.batch_time * (1 + 1e-9)
                assert found.costs == (time < plan.batch_time * (1 - 1e-9))
    assert "cluster.memory" in places


@pytest.mark.longer
def test_a_constraint_that_rules_out_the_best_plan_costs_what_it_loses() -> None:
    costly = 0
    for plan, problem, solver in solved(range(4)):
        demand = f"replicas != {plan.data_parallel}"
        narrowed = evolve(problem, constraints=(*problem.constraints, demand))
        second = solver.plan(narrowed)
        assert second is not None
        entry = next(each for each in relaxations(narrowed, solver.plugins) if each.written == demand)
        found = shadow_price(second, narrowed, entry, solver)
        assert found.outcome.plan == plan
        costly += found.costs
        assert found.costs == (second.batch_time is None or second.batch_time > plan.batch_time * (1 + 1e-9))
    assert costly


@pytest.mark.longer
def test_every_entry_is_loosened_once_and_nothing_else() -> None:
    problem = {
        "nest": 1,
        "model": {"transformer": {"layers": 2, "hidden": 64, "ffn": 64, "heads": 4, "vocab": 64}},
        "training": {"global_batch": 4, "sequence_length": 16, "micro_batch": [1], "schedule": ["gpipe"]},
        "cluster": {"device": "h100-sxm", "levels": [{"fanout": 4, "bandwidth": 4e11}]},
        "strategies": {"tp": [1, 2], "batch": [1, 2], "cp": [1]},
        "constraints": ["pp <= 2", "tp * cp <= 2"],
        "fixed": {"pp": 2, "cp": 1, "stages": [1, 1]},
        "search": {"zero": [0], "rank_order": ["pp-inner"], "recompute": ["none"], "zero_degree": [2]},
    }
    known = registry()
    plan = api.solve(problem)
    found = {each.place: each.problem for each in relaxations(structure(plan.problem, Problem), known)}
    assert list(found) == [
        "constraints[0]", "constraints[1]", "fixed.pp", "fixed.cp", "fixed.stages", "strategies.tp",
        "strategies.batch", "search.rank_order", "search.zero", "search.recompute", "search.zero_degree",
        "training.schedule", "training.micro_batch", "training.uneven_batch", "training.memory_risk", "cluster.memory",
    ]  # fmt: skip
    assert found["constraints[0]"].constraints == ("tp * cp <= 2",)
    assert found["fixed.pp"].decided == {"cp": 1}
    assert found["strategies.tp"].strategies == {"batch": (1, 2), "cp": (1,)}
    assert found["strategies.batch"].strategies["batch"] == (1, 2, 3, 4)  # Without a word on it, it takes no part.
    assert found["search.zero_degree"].search.zero_degree == (2, "all")
    assert (found["training.memory_risk"].training.memory_risk or 0) > 0.5
    assert found["training.schedule"].training.schedule[0] == "gpipe"
    assert set(found["training.schedule"].training.schedule) == set(known.schedules())
    assert found["training.micro_batch"].training.micro_batch == (1, 2, 4)
