"""Candidates known to be too slow, or to have no plan, are neither priced nor searched, and change no answer."""

from importlib import import_module
from math import inf
from typing import Any

import pytest
from attrs import evolve

from nest.formulate import candidates
from nest.formulate.instance import build_instance
from nest.hooks.registry import registry
from nest.instance import Instance, Result
from nest.solve.dp import solve
from nest.spec import ClusterSpec, Problem, Training, TransformerSpec
from nest.spec.problem import Search
from nest.whatif.parameters import parameters
from nest.whatif.solver import Solver
from tests.bare_devices import bare
from tests.formulate.conftest import DENSE, EXPERTS, NODES
from tests.seeds import few

PROBLEMS: dict[str, dict[str, Any]] = {
    "dense": {"constraints": ("tp == 1 or sp > 1", "pp <= 4")},
    "experts": {"model": EXPERTS, "strategies": {"ep": (1, 2), "tp": (1, 2)}, "constraints": ("ep > 1",)},
    "chunks": {"training": {"schedule": ("1f1b", "interleaved")}, "constraints": ("tp <= 2", "zero != 3")},
    "compute": {
        "model": TransformerSpec(layers=4, hidden=4096, ffn=16384, heads=32, kv_heads=8, vocab=32_000),
        "training": {"sequence_length": 2048, "micro_batch": (1,)},
        "constraints": ("tp > 2", "cp == 1", "pp <= 2", "zero <= 1"),
    },
    "little memory": {"cluster": {"memory": 1.2e6}, "training": {"micro_batch": (1,)}},
}


def problem_of(kind: str) -> Problem:
    rest = {"model": DENSE, **PROBLEMS[kind]}
    training = {"global_batch": 16, "sequence_length": 128, "micro_batch": (1, 2), **rest.pop("training", {})}
    cluster = {"levels": NODES, "device": bare("a100-sxm-80g"), **rest.pop("cluster", {})}
    return Problem(nest=1, training=Training(**training), cluster=ClusterSpec(**cluster), **rest)


@pytest.mark.longer
@pytest.mark.parametrize("kind", few(PROBLEMS, "chunks"))
def test_the_answer_is_that_of_all_candidates(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    solvers = import_module("nest.solve.solver")
    whole = solvers.solve

    def counted(instance: Instance, *arguments: Any, **named: Any) -> Result:
        searched.append(len(instance.candidates))
        return whole(instance, *arguments, **named)

    monkeypatch.setattr(solvers, "solve", counted)
    problem, solver, alone = problem_of(kind), Solver(registry()), Solver(registry())
    best = solver.plan(problem)
    assert best is not None
    every, narrowed = searched[0], list[int]()
    for parameter in parameters(problem, registry()):
        for factor in (0.5, 4.0):
            floors = solver.floors(problem, parameter, factor)
            assert (floors is not None) == (parameter.unit in ("bytes/s", "FLOP/s"))
            if floors is None:
                continue
            changed = parameter.changed(problem, parameter.value * factor)
            found, expected = solver.with_new_counters().plan(changed, "", best, floors), alone.plan(changed, "", best)
            assert found is not None
            assert expected is not None
            assert (found.status, found.batch_time, found.stages) == (
                expected.status,
                expected.batch_time,
                expected.stages,
            )
            assert solver.times_on(changed, (best, found)) == (alone.time_on(changed, best), found.batch_time)
            narrowed.append(searched[-2])
            assert searched[-1] == every
    assert min(narrowed) < every


@pytest.mark.parametrize("kind", few(PROBLEMS, "compute"))
def test_no_plan_with_a_changed_number_is_below_the_floor_of_its_candidate(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "MANY", 1)  # Candidates are priced as far as plans are asked about.
    problem, solver, asked = problem_of(kind), Solver(registry()), 0
    solver.plan(problem)
    for parameter in parameters(problem, registry()):
        for factor in (0.5, 1.5, 4.0):
            floors = solver.floors(problem, parameter, factor)
            if floors is None:
                continue
            changed = build_instance(parameter.changed(problem, parameter.value * factor), registry())
            for candidate in changed.candidates:
                alone = solve(evolve(changed, candidates=(candidate,)), runner_up=False, diagnosed=False)
                if alone.batch_time is not None:
                    asked += 1
                    assert candidate.name in floors(alone.batch_time * (1 + 1e-9))
    assert asked


def test_constraints_on_degrees_leave_candidates_no_plan() -> None:
    problem, solver = problem_of("dense"), Solver(registry())
    floors = solver.floors(problem, parameters(problem, registry())[0], 0.5)
    assert floors is not None
    assert "tp2-sp2-mb1" in floors(inf)
    assert "tp2-mb1" not in floors(inf)


def test_where_plans_mix_candidates_nothing_is_known_of_one() -> None:
    problem = problem_of("dense")
    mixed = Problem(nest=1, model=DENSE, training=problem.training, cluster=problem.cluster, search=Search(mixed=True))
    every = parameters(mixed, registry())
    assert all(Solver(registry()).floors(mixed, parameter, 0.5) is None for parameter in every)
