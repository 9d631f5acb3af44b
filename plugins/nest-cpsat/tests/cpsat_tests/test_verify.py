"""The proof: it agrees with brute force, catches what is worse, and never says more than it knows."""

import json
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from attrs import evolve

import nest
from cpsat_tests.asking import CLOSE, ask, document
from cpsat_tests.without_bounds import leave_cases_to_models
from nest import api
from nest.errors import InputError
from nest.hooks.registry import registry
from nest.instance import Candidate, Cluster, Instance, Level, RecomputeMode, Solution, StageDecision
from nest.plan.evaluate import evaluate
from nest.plan.legality import structure_violations
from nest.solve.dp import solve as dynamic_program
from nest.spec.constraints import parse
from nest_cpsat import chunk_models, search
from tests.agreement.problems import random_plan, random_problem
from tests.oracle.brute_force import solve
from tests.oracle.price import price, violations
from tests.seeds import blocks, seeds
from tests.small_instances import candidate, chain, cluster, instance
from tests.solve.test_placement import crowded as uneven


def examine(problem: dict[str, Any]) -> None:
    """The optimum is proved, and nothing above it."""
    answer = solve(problem)
    if answer.batch_time is None:
        refused = nest.solve(problem, verify=True)
        assert refused.status == "infeasible"
        assert refused.verification is not None
        assert refused.verification["status"] == "proved"
        return
    plan = document(problem, answer.plan)
    assert nest.verify(plan).status == "proved"
    slower = slower_plan(problem, answer.batch_time)
    if slower is not None:
        verdict = nest.verify(document(problem, slower))
        assert verdict.status == "refuted"
        assert verdict.better is not None
        assert verdict.better.batch_time == pytest.approx(answer.batch_time, rel=CLOSE)
        assert nest.check(verdict.better).ok


def slower_plan(problem: dict[str, Any], best: float) -> dict[str, Any] | None:
    random = Random(0)
    for _ in range(30):
        plan = random_plan(random, problem)
        if plan is not None and not violations(problem, plan):
            numbers = price(problem, plan)
            if numbers["fits"] and numbers["batch_time"] > best * (1 + 2 * CLOSE):
                return plan
    return None


@pytest.mark.parametrize("seed", seeds(20, 100, long=[1]))
def test_it_agrees_with_brute_force(seed: int) -> None:
    examine(random_problem(Random(seed)))


@pytest.mark.longer
@pytest.mark.parametrize(("kind", "sharded"), [("mixed", False), ("chunked", False), ("plain", True), ("mixed", True)])
@pytest.mark.parametrize("seed", seeds(4, 60))
def test_it_agrees_with_brute_force_on_other_kinds(seed: int, kind: str, sharded: bool) -> None:
    examine(random_problem(Random(seed), kind, sharded=sharded))


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(3, 30, 60))
def test_its_model_agrees_with_brute_force_where_chunks_are_dealt(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds settle most cases; here none takes part."""
    monkeypatch.setattr(chunk_models.ChunkModels, "bound", lambda *_: 0.0)
    leave_cases_to_models(monkeypatch)
    examine(random_problem(Random(seed), "chunked"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["any", "chunked"])
@pytest.mark.parametrize("block", blocks(1000, 2000))
def test_it_agrees_with_brute_force_on_many(block: range, kind: str) -> None:
    for seed in block:
        examine(random_problem(Random(seed), kind))


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(5, 40))
def test_it_agrees_with_brute_force_where_bounds_take_part(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small problems are asked in one model without bounds; here each case is, after the bounds."""
    monkeypatch.setattr(search, "FEW_CASES", 0)
    examine(random_problem(Random(seed + 500)))


@pytest.mark.longer
def test_every_published_optimum_is_proved(shared: Path) -> None:
    for line in (shared / "small" / "optima.jsonl").read_text().splitlines()[::2]:
        record = json.loads(line)
        problem, best = record["problem"], record["batch_time"]
        plan = nest.solve(problem, verify=True)
        assert plan.verification is not None
        assert plan.verification["status"] == "proved", record["seed"]
        assert (plan.batch_time is None) == (best is None)
        assert best is None or plan.verification["bound"] == pytest.approx(best, rel=CLOSE)


@pytest.mark.longer
def test_every_published_chain_is_proved_and_nothing_slower(shared: Path) -> None:
    for line in (shared / "small" / "chains.jsonl").read_text().splitlines()[::8]:
        record = json.loads(line)
        plan = nest.solve(record["problem"], verify=True)
        assert plan.verification is not None
        assert plan.verification["status"] == "proved", record["seed"]


def moved_layer(stages: list[StageDecision]) -> list[StageDecision]:
    """The last layer of the first stage runs in the second."""
    first, second, *rest = stages
    moved = first.layers[-1]
    return [evolve(first, layers=first.layers[:-1]), evolve(second, layers=(moved, *second.layers)), *rest]


def with_gap(stages: list[StageDecision]) -> list[StageDecision]:
    """The last block lies in another group."""
    return [*stages[:-1], evolve(stages[-1], offset=stages[-1].offset + 4)]


def recomputed(stages: list[StageDecision]) -> list[StageDecision]:
    """All activations are computed twice."""
    return [evolve(stage, recompute="full") for stage in stages]


def sharded(stages: list[StageDecision]) -> list[StageDecision]:
    """Weights are gathered for every micro-batch."""
    return [evolve(stage, zero=3) for stage in stages]


@pytest.mark.longer
@pytest.mark.parametrize("worsen", [moved_layer, with_gap, recomputed, sharded])
@pytest.mark.parametrize("order", ["pp-inner", "dp-inner"])
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "nest"])
def test_a_plan_worsened_by_hand_is_refuted(worsen: Any, order: str, schedule: str) -> None:
    used = candidate(8, seed=4)
    problem = instance(
        [used],
        machines=cluster((2, 4, 2)),
        rank_orders=(order,),
        schedules=(schedule,),
        constraints=["pp == 2", "replicas == 2"],
    )
    found = dynamic_program(problem)
    assert found.solution is not None
    assert ask(problem, found.batch_time).status == "proved"
    worse = evolve(found.solution, stages=tuple(worsen(list(found.solution.stages))))
    assert structure_violations(problem, worse) == []
    verdict = ask(problem, evaluate(problem, worse).batch_time)
    assert verdict.status == "refuted"
    assert verdict.settled
    assert verdict.better_batch_time == pytest.approx(found.batch_time, rel=CLOSE)


def crowded(fanouts: tuple[int, int], sizes: list[float]) -> Instance:
    """A chain with tensors of these sizes, which are dear between nodes and cheap within; each layer fills a device."""
    pp = len(sizes) + 1
    zeros = numpy.zeros(pp)
    machines = Cluster((Level("node", fanouts[0], 1e6, 0.0), Level("rack", fanouts[1], 1.0, 0.0)), 3.0)
    held = RecomputeMode("none", zeros, zeros + 3, zeros, zeros)
    used = Candidate("c", {}, 1, 1, zeros + 1, zeros + 1, (), (held,), sizes)
    return instance([used], machines=machines, global_batch=2, rank_orders=("pp-inner",), constraints=[f"pp == {pp}"])


@pytest.mark.longer
@pytest.mark.parametrize(
    ("fanouts", "sizes", "pays"),
    [
        ((2, 2), [1.0, 5.0, 1.0], True),  # The middle of the chain in one node, its ends in the other.
        ((2, 2), [5.0, 1.0, 5.0], False),
        ((3, 2), [1.0, 5.0], False),
        ((2, 3), [1.0, 5.0, 3.0, 5.0], False),
    ],
)
def test_free_placement_costs_what_trying_every_order_says(
    fanouts: tuple[int, int], sizes: list[float], pays: bool
) -> None:
    problem = crowded(fanouts, sizes)
    best = dynamic_program(problem)
    assert best.solution is not None
    assert best.batch_time is not None
    found = ask(problem, best.batch_time, free=True)
    assert found.status == "proved"
    assert found.free is not None
    least = min(evaluate(problem, each).batch_time for each in every_placement(problem, best.solution))
    cost = found.summary()["free"]["cost"]
    assert cost == pytest.approx(best.batch_time / least - 1, abs=CLOSE)
    assert (cost > 0) == pays


@pytest.mark.parametrize(
    ("fanouts", "sizes", "stages", "pays"),
    [
        # Between stages 1 and 3 of a pipeline of two chunks more is sent than between its neighbours.
        ((2, 2), [1.0, 1.0, 9.0, 1.0, 1.0], 3, True),
        ((2, 2), [1.0, 9.0, 1.0, 1.0, 1.0], 3, False),
        ((3, 2), [1.0, 5.0, 1.0], 2, False),
    ],
)
def test_free_placement_minds_the_way_back(
    fanouts: tuple[int, int], sizes: list[float], stages: int, pays: bool
) -> None:
    crowd = crowded(fanouts, sizes)
    space = evolve(
        crowd.space,
        global_batch=stages,
        schedules=(registry().schedules()["interleaved"],),
        blocks=tuple((layer,) for layer in range(2 * stages)),
        constraints=(parse(f"pp == {stages}"), parse("replicas == 1")),
    )
    problem = evolve(crowd, space=space, cluster=evolve(crowd.cluster, memory=1e9))
    best = dynamic_program(problem)
    assert best.solution is not None
    assert best.solution.chunks == 2
    found = ask(problem, best.batch_time, free=True)
    assert found.status == "proved"
    assert found.free is not None
    placements = permutations(range(problem.cluster.size), stages)
    least = min(
        evaluate(problem, evolve(best.solution, stages=tuple(placed))).batch_time
        for offsets in placements
        for placed in [
            [evolve(stage, offset=offset) for stage, offset in zip(best.solution.stages, offsets, strict=True)]
        ]
    )
    assert best.batch_time is not None
    assert found.summary()["free"]["cost"] == pytest.approx(best.batch_time / least - 1, abs=CLOSE)
    assert (best.batch_time > least * (1 + CLOSE)) == pays


@pytest.mark.parametrize("sizes", [[3.0, 0.01, 3.0], [1.0, 3.0, 3.0], [3.0, 3.0, 1.0]])
def test_a_plan_that_leaves_out_a_slot_across_groups_is_found(sizes: list[float]) -> None:
    problem = uneven((5, 2), 2, "dp-inner", sizes)
    best = dynamic_program(problem)
    assert best.solution is not None
    assert best.batch_time is not None
    assert {stage.offset for stage in best.solution.stages} != set(range(4))
    assert ask(problem, best.batch_time).status == "proved"
    assert ask(problem, 1.5 * best.batch_time).better_batch_time == pytest.approx(best.batch_time, rel=CLOSE)


def every_placement(problem: Instance, solution: Solution) -> Iterator[Solution]:
    """The plan with its blocks anywhere in their replica; its layers leave no other choice."""
    for replicas in range(1, problem.cluster.size // len(solution.stages) + 1):
        if problem.micro_batches(problem.candidates[0], replicas) is None:
            continue
        for offsets in permutations(range(problem.cluster.size // replicas), len(solution.stages)):
            placed = zip(solution.stages, offsets, strict=True)
            stages = tuple(evolve(stage, offset=offset) for stage, offset in placed)
            yield evolve(solution, replicas=replicas, stages=stages)


@pytest.mark.longer
def test_time_being_up_leaves_it_open_with_a_bound_that_holds() -> None:
    many = [candidate(10, name=f"c{i}", seed=i, samples=s) for i, s in enumerate((1, 2, 4))]
    problem = instance(many, machines=cluster((2, 2, 2, 2)), global_batch=64)
    best = ask(problem, 1e9).better_batch_time
    assert best is not None
    stopped = ask(problem, best, time_limit=1e-9)
    assert stopped.status == "open"
    assert not stopped.settled
    assert stopped.reason is not None
    assert stopped.bound is not None
    assert stopped.bound <= best


@pytest.mark.longer
@pytest.mark.parametrize("memory", [1e9, 60.0, 40.0])
def test_where_cp_sat_has_no_answer_the_bounds_decide(memory: float, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [candidate(10, name=f"c{i}", seed=i, samples=s) for i, s in enumerate((1, 2, 4))]
    problem = instance(many, machines=cluster((2, 2, 2, 2), memory), global_batch=64)
    best = ask(problem, 1e9).better_batch_time
    assert best is not None

    def silent(*_: Any) -> tuple[Any, str]:
        return SimpleNamespace(best_objective_bound=0.0, deterministic_time=0.0), "UNKNOWN"

    monkeypatch.setattr(search.Effort, "ask", silent)
    # Nothing takes time now, and it would ask for ever.
    unanswered = ask(problem, best, time_limit=0.2)
    assert unanswered.better is None
    assert unanswered.bound is not None
    assert type(unanswered.bound) is float
    assert unanswered.bound <= best


def test_no_plan_is_below_one_that_takes_no_time() -> None:
    zeros = numpy.zeros(3)
    nothing = RecomputeMode("none", zeros, zeros, zeros, zeros)
    free = Candidate("c", {}, 1, 1, zeros, zeros, (), (nothing,), zeros[:2])
    found = ask(instance([free], graph=chain(3)), 0.0)
    assert (found.status, found.gap) == ("proved", 0.0)


def test_what_cannot_be_verified_is_refused() -> None:
    problem = random_problem(Random(1), "plain")
    answer = solve(problem)
    assert answer.batch_time is not None
    plan = document(problem, answer.plan)
    with pytest.raises(InputError, match="fails its check"):
        nest.verify(plan | {"batch_time": answer.batch_time * 0.9, "lower_bound": answer.batch_time * 0.9})
    with pytest.raises(InputError, match="workers"):
        nest.verify(plan, workers=0)
    with pytest.raises(InputError, match="time limit"):
        api.verify(plan, time_limit=-1.0)
    with pytest.raises(InputError, match="verify"):
        nest.solve(problem, verify="loose")
