"""Bounds that settle cases without CP-SAT: no plan is below them, and they see what there is no room for."""

from collections.abc import Iterator
from math import inf
from random import Random
from typing import Any

import numpy
import pytest
from attrs import evolve

from cpsat_tests.asking import document, instance_of
from nest.instance import Instance, Solution, chunks_of
from nest.io import structure
from nest.plan.document import solution_of
from nest.plan.evaluate import evaluate
from nest.solve.effort import Deadline
from nest.spec import PlanDocument
from nest_cpsat.cases import Case, OpenCase, cases
from nest_cpsat.chunk_models import ChunkModels
from nest_cpsat.compute_bound import ComputeBound
from nest_cpsat.cuts import list_cuts
from nest_cpsat.families import Families
from nest_cpsat.path_models import PathModels
from nest_cpsat.room_bound import RoomBound
from nest_cpsat.scaling import Limit, scale
from nest_cpsat.solver import Effort
from tests import pooled_problems
from tests.agreement import random_pools
from tests.agreement.problems import random_plan, random_problem
from tests.oracle import brute_force, pools
from tests.oracle.price import violations
from tests.seeds import seeds
from tests.small_instances import candidate, chain, cluster, instance

ROUNDED = 1 + 1e-9
"""A bound may exceed the step time of a plan by rounding."""


def fitting_plans(seed: int, kind: str) -> Iterator[tuple[Instance, Solution]]:
    """Plans of a random problem that keep its memory and constraints: the fastest, and some others."""
    random = Random(seed)
    if kind == "pools":
        problem = random_pools.random_pool_problem(random)
        drawn: list[Any] = [random_pools.random_plan(random, problem, random.choice([1, 2, 3])) for _ in range(20)]
        legal = [each for each in drawn if each is not None and not pools.violations(problem, each)]
        best = pools.solve(problem).plan
    else:
        problem = random_problem(random, kind)
        drawn = [random_plan(random, problem, random.choice([1, 2, 3])) for _ in range(20)]
        legal = [each for each in drawn if each is not None and not violations(problem, each)]
        best = brute_force.solve(problem).plan
    formulated = instance_of(problem)
    for plan in [*legal, *([] if best is None else [best])]:
        if kind == "pools":
            solution = pooled_problems.solution_of(formulated, plan)
        else:
            solution = solution_of(formulated, structure(document(problem, plan), PlanDocument))
        if evaluate(formulated, solution).fits:
            yield formulated, solution


def cases_with(problem: Instance, solution: Solution) -> Iterator[Case]:
    """The cases that a plan belongs to."""
    used = {stage.candidate for stage in solution.stages}
    for case in cases(problem, len(problem.graph.layers)):
        same = (case.replicas, case.rank_order, case.schedule.name, chunks_of(case.schedule), case.stages)
        if same != (solution.replicas, solution.rank_order, solution.schedule, solution.chunks, len(solution.stages)):
            continue
        if used != set(case.candidates) if problem.pools is not None else not used <= set(case.candidates):
            continue
        allowed = dict(zip(case.candidates, case.modes, strict=True))
        modes = ((stage.recompute, stage.zero) in allowed[stage.candidate] for stage in solution.stages)
        if shards(problem, case, solution.zero_degree) == shards(problem, case, case.zero_degree) and all(modes):
            yield case


def shards(problem: Instance, case: Case, degree: int | None) -> list[int]:
    """Devices of the shard groups of all candidates of a case."""
    groups = [group for each in case.candidates for group in problem.candidates[each].state]
    return [min(case.replicas * len(group.ranks), degree or problem.size) for group in groups]


@pytest.mark.parametrize("kind", ["plain", "mixed", "chunked", "pools"])
@pytest.mark.parametrize("seed", seeds(3, 60))
def test_no_plan_is_below_a_bound(seed: int, kind: str) -> None:
    for problem, solution in fitting_plans(seed, kind):
        priced = evaluate(problem, solution)
        seconds, slowest = priced.batch_time, max(stage.time for stage in priced.stages) * ROUNDED
        cuts = list_cuts(problem, 600)
        assert cuts is not None
        compute, room = ComputeBound(problem), RoomBound(problem)
        paths, chunked = PathModels(problem, cuts), ChunkModels(problem)
        of_plan = list(cases_with(problem, solution))
        assert of_plan
        for case in of_plan:
            assert compute.of(case) <= seconds * ROUNDED
            assert compute.slowest_limit(case, seconds * ROUNDED) >= slowest / ROUNDED**2
            assert not room.excludes(case, slowest)
            models = chunked if chunks_of(case.schedule) > 1 else paths
            assert models.bound(case, seconds * 1.5) <= seconds * ROUNDED
            assert row_bound(problem, compute, case) <= seconds * ROUNDED


def row_bound(problem: Instance, compute: ComputeBound, case: Case) -> float:
    """What the bound says of the row that a case is of: the most, where there are several."""
    found = []
    for family in Families(problem, len(problem.graph.layers)):
        rows, schedules = family.rows, problem.space.schedules
        own = numpy.array([schedules[number] is case.schedule for number in rows.schedule.tolist()], dtype=bool)
        own &= (rows.stages == case.stages) & (rows.replicas == case.replicas)
        # Constraints may leave some candidates of a family only, where these are no pools'.
        left = (
            set(case.candidates) <= set(family.candidates)
            if problem.pools is None
            else case.candidates == family.candidates
        )
        if left and case.widest == family.widest:
            found += compute.of_rows(family)[own].tolist()
    return float(max(found))


@pytest.mark.parametrize("seed", seeds(4, 60, first=12))
def test_no_plan_of_several_chunks_is_left_out_by_the_model_of_contents(seed: int) -> None:
    for problem, solution in fitting_plans(seed, "chunked"):
        seconds = evaluate(problem, solution).batch_time

        def limit_of(case: Case, terms: int, seconds: float = seconds) -> Limit:
            scaled = scale(case.weights, case.stages, seconds, terms, apart=case.apart)
            return scaled, scaled.limit(seconds)

        models, effort = ChunkModels(problem), Effort(1, 0, Deadline())
        for case in cases_with(problem, solution) if solution.chunks > 1 else ():
            model = models.outline(OpenCase(case, 0.0, 1.0), seconds * ROUNDED, limit_of)
            assert model is not None
            assert effort.ask(model, 1.0)[1] == "OPTIMAL"


def alike(layers: int, **changes: Any) -> Instance:
    """Layers of 3 s and 10 bytes each, without recomputation: two stages on two devices."""
    used = candidate(layers)
    ones = numpy.ones(layers)
    state = evolve(used.state[0], weights=ones, gradients=ones, optimizer=ones, update=0 * ones)
    mode = evolve(used.recompute[0], first=7 * ones, more=7 * ones)
    used = evolve(used, forward=ones, backward=2 * ones, state=(state,), recompute=(mode,))
    asked = {"zero": (0,), "constraints": ["pp == 2"], "rank_orders": ("pp-inner",), **changes}
    return instance([used], graph=chain(layers), **asked)


@pytest.mark.parametrize(("memory", "excluded"), [(30.0, False), (29.9, True), (34.0, False)])
def test_stages_that_have_not_memory_for_all_layers_are_seen(memory: float, excluded: bool) -> None:
    """Two micro-batches in flight make 17 bytes a layer in front, one 10 bytes behind."""
    problem = alike(4, machines=cluster((2,), memory=memory))
    (case,) = cases(problem, 4)
    assert RoomBound(problem).excludes(case, inf) is excluded


@pytest.mark.parametrize(("slowest", "excluded"), [(6.0, False), (5.99, True), (9.0, False)])
def test_stages_that_have_not_time_for_all_layers_are_seen(slowest: float, excluded: bool) -> None:
    problem = alike(4)
    (case,) = (each for each in cases(problem, 4) if each.replicas == 1)
    assert RoomBound(problem).excludes(case, slowest) is excluded


class Filling:
    """Gradients of weights fill what others leave, as far as they may."""

    name = "filling"

    def weights(self, micro_batches: int, stages: int) -> tuple[float, float, float, float]:
        """All stages wait for passes forward and for gradients of inputs alone."""
        return micro_batches - 1.0, 1.0, 1.0, -1.0

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> float:
        """One."""
        return 1.0


def test_a_row_weighs_compute_as_its_cheapest_part() -> None:
    """Gradients of weights are taken off the step of 12 s a micro-batch, and rows do not tell what is spent on them."""
    problem = alike(4, constraints=["pp == 1"])
    space = evolve(problem.space, schedules=(Filling(),))
    problem = evolve(problem, space=space)
    compute = ComputeBound(problem)
    (case,) = (each for each in cases(problem, 1) if each.replicas == 1)
    # Of each layer a pass forward of 1 s, and 1 s for the gradients of either kind, of which those of weights go off.
    assert compute.of(case) == pytest.approx(7 * 12 + 4 * (1 + 1 - 1))
    # The cheapest second is half gradients of inputs and half of weights, and adds nothing.
    assert row_bound(problem, compute, case) == pytest.approx(7 * 12)
