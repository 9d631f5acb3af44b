"""The dynamic program as a whole: certificates, ties, limits, diagnoses (brute force: tests/agreement)."""

import gc
import math
from typing import Any

import numpy
import pytest
from attrs import evolve

from nest.instance import Candidate, Instance, ParameterGroup, RecomputeMode
from nest.plan.evaluate import evaluate
from nest.plan.legality import permission_violations, structure_violations
from nest.schedules.interleaved import Interleaved
from nest.solve.dp import solve
from nest.solve.dp.nodes import PlanSearch
from nest.solve.dp.pareto import Floor, Objective, Partition, PlacedStage, least_batch_time
from tests.small_instances import candidate, cluster, instance


def test_the_plan_keeps_every_rule_and_costs_what_was_promised() -> None:
    problem = instance(
        [candidate(7), candidate(7, name="wide", width=2, seed=1, scale=0.6)], machines=cluster((2, 2, 2))
    )
    result = solve(problem)
    assert result.status == "optimal"
    assert result.solution is not None
    assert structure_violations(problem, result.solution) == []
    assert permission_violations(problem, result.solution) == []
    priced = evaluate(problem, result.solution)
    assert priced.fits
    assert priced.batch_time == pytest.approx(result.batch_time, rel=1e-9)
    assert result.lower_bound == result.batch_time


@pytest.mark.longer
def test_a_search_that_is_done_holds_no_memory_until_garbage_is_looked_for() -> None:
    used, blocks = [candidate(6), candidate(6, name="d", width=2, seed=1)], tuple((layer,) for layer in range(6))
    problem = instance(used, blocks=blocks, global_batch=4)
    schedules = (*problem.space.schedules, Interleaved(2))
    problem = evolve(problem, space=evolve(problem.space, schedules=schedules))
    gc.collect()
    gc.disable()
    try:
        solve(problem, runner_up=True)
        assert not [each for each in gc.get_objects() if isinstance(each, PlanSearch)]
    finally:
        gc.enable()


def test_infeasible_memory_names_the_least_reachable_bytes() -> None:
    result = solve(instance([candidate(4)], machines=cluster(memory=2.0, reserve=1.0)))
    assert result.status == "infeasible"
    assert result.solution is None
    assert result.diagnosis is not None
    assert "Memory is tightest" in result.diagnosis


def test_infeasible_constraints_are_named() -> None:
    result = solve(instance([candidate(4)], constraints=["pp >= 3", "devices <= 2"]))
    assert result.status == "infeasible"
    assert result.diagnosis is not None
    assert "pp >= 3" in result.diagnosis
    assert "devices <= 2" in result.diagnosis


def test_infeasible_batch_is_named() -> None:
    result = solve(instance([candidate(4, samples=3)], global_batch=8))
    assert result.status == "infeasible"
    assert result.diagnosis is not None
    assert "No number of replicas divides" in result.diagnosis


def test_a_time_limit_gives_a_plan_with_a_bound_below_it() -> None:
    many = [candidate(8, name=f"c{i}", seed=i, samples=s) for i, s in enumerate((1, 2, 4))]
    problem = instance(many, machines=cluster((2, 2, 2, 2)), global_batch=64)
    exact = solve(problem)
    stopped = solve(problem, time_limit=1e-9)
    assert stopped.status in ("feasible", "optimal")
    assert stopped.lower_bound is not None
    assert exact.batch_time is not None
    assert stopped.batch_time is not None
    assert stopped.lower_bound <= exact.batch_time * (1 + 1e-12) <= stopped.batch_time * (1 + 2e-12)


def test_progress_bounds_never_exceed_the_optimum() -> None:
    seen: list[tuple[float | None, float]] = []
    problem = instance([candidate(6), candidate(6, name="d", samples=2, seed=3)], machines=cluster((2, 2, 2)))
    result = solve(problem, progress=lambda standing: seen.append((standing.best, standing.bound)))
    assert seen
    assert result.batch_time is not None
    assert all(bound <= result.batch_time * (1 + 1e-12) for _, bound in seen)


def test_a_collective_model_without_arrays_gives_the_same_plan() -> None:
    problem = instance([candidate(5)], machines=cluster((2, 3)))

    class Scalar:
        name = "scalar"

        def time(self, kind: str, size: float, shape: object, levels: object, members: int) -> float:
            return problem.collectives.time(kind, float(size), shape, levels, members)  # type: ignore[arg-type]

    other = Instance(problem.cluster, problem.graph, problem.candidates, problem.space, Scalar())  # type: ignore[arg-type]
    assert solve(other).solution == solve(problem).solution


def test_the_search_of_boxes_finds_the_best_of_given_points() -> None:
    """Against a list of (max t, sum t, max y) points, whatever the weights."""
    draw = numpy.random.default_rng(5)
    for _ in range(1000):
        points = draw.integers(0, 8, (draw.integers(1, 12), 3)).astype(float)
        weights = draw.choice([0.0, 0.5, 1.0, 3.0, 20.0], 2)
        objective = Objective(*(float(w) for w in weights))

        def run(time_limit: float, sync_limit: float, points: numpy.ndarray = points) -> Partition | None:
            allowed = [p for p in points if p[0] <= time_limit and p[2] <= sync_limit]
            if not allowed:
                return None
            most, total, sync = min(allowed, key=lambda p: p[1])
            rest = total - most
            stages = [PlacedStage(0, 0, 0, 0, most, most, sync), PlacedStage(0, 0, 0, 0, rest, rest, 0.0)]
            return Partition(tuple(stages))

        points[:, 1] += points[:, 0] * 2
        points[:, 1] = numpy.maximum(points[:, 1], points[:, 0])
        points[:, 1] = numpy.minimum(points[:, 1], 2 * points[:, 0])
        floor = Floor(*(float(v) for v in points.min(axis=0)))
        best = min(objective.of(Floor(*p)) for p in points)
        value, found = least_batch_time(run, objective, floor, math.inf)
        assert found is not None
        assert value == pytest.approx(best)
        assert least_batch_time(run, objective, floor, best)[1] is None
        above = best + draw.uniform(0.1, 5)
        value, found = least_batch_time(run, objective, floor, above, first_will_do=True)
        assert found is not None
        assert best <= value < above


def sharded(memory: float = 1e9, **space: Any) -> Instance:
    """Eight replicas of two layers whose 64 bytes of state are large beside what they compute."""
    heavy = numpy.array([4.0, 4.0])
    zeros = numpy.zeros(2)
    held = Candidate(
        name="held",
        degrees={},
        width=1,
        samples=1,
        forward=zeros + 1,
        backward=zeros + 2,
        state=(ParameterGroup("dense", (0,), heavy, heavy, 6 * heavy, heavy / 10),),
        recompute=(RecomputeMode("none", zeros, zeros, zeros, zeros),),
        tensor_bytes=zeros[:1],
    )
    return instance([held], machines=cluster((2, 4), memory), constraints=["replicas == 8"], global_batch=64, **space)


def test_ties_go_to_all_ranks_and_then_to_shard_groups_as_listed() -> None:
    """Without ZeRO, shard groups change nothing."""
    for degrees, expected in (((None, 4, 2), None), ((4, 2), 4), ((2, 4), 2)):
        result = solve(sharded(zero=(0,), zero_degrees=degrees))
        assert result.solution is not None
        assert result.solution.zero_degree == expected


@pytest.mark.parametrize(("memory", "expected"), [(32.0, 2), (31.0, 4), (15.0, None)])
def test_shard_groups_are_as_small_as_memory_allows(memory: float, expected: int | None) -> None:
    """Gathering weights over fewer, nearer devices in every micro-batch is worth a sum over the others once."""
    result = solve(sharded(memory, zero=(3,), zero_degrees=(None, 4, 2)))
    assert result.solution is not None
    assert result.solution.zero_degree == expected


def test_shard_groups_that_change_nothing_are_not_searched_twice() -> None:
    once = solve(sharded(zero_degrees=(None,)))
    assert solve(sharded(zero_degrees=(None, 8, 16))).statistics == once.statistics


def test_shard_groups_that_fit_no_ranks_are_told() -> None:
    result = solve(sharded(zero_degrees=(16, 3), uneven_batch=True))
    assert result.solution is not None
    assert result.solution.zero_degree == 16
    result = solve(sharded(zero_degrees=(3, 5)))
    assert result.status == "infeasible"
    assert result.diagnosis is not None
    assert "shard groups of 3, 5" in result.diagnosis
