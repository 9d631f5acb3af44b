"""The planner against the oracle on random problems, and against published optima."""

import importlib
import json
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings, strategies

from tests.agreement.compare import as_json, complaint, disagreements, planner, solved
from tests.agreement.draws import SHARES, draw, hangs_on_rounding
from tests.agreement.fuzz import compare
from tests.agreement.problems import random_plan, random_problem
from tests.oracle.check import check_document, same
from tests.seeds import blocks, few, seeds

DRAWN = {
    "schedules": 20,
    "mixed schedules": 12,
    "plain": 40,
    "mixed": 14,
    "chunked": 16,
    "uneven": 14,
    "sharded": 10,
    "sharded mixed": 6,
    "target": 10,
}
"""How many problems of each kind are drawn one by one."""

TELLING = {"mixed schedules": (20, 31, 33)}
"""Further ones, which alone tell of faults that tests/mutants plants."""

NOW = {
    "schedules": (0, 1, 2, 5, 9, 12, 16),
    "mixed schedules": (1, 9, 20, 33),
    "plain": (*range(6), 21),
    "mixed": (0, 1, 2, 8),
    "chunked": (0, 1, 2, 10),
    "uneven": (0, 1, 2, 3),
    "sharded": range(4),
    "sharded mixed": range(2),
    "target": range(4),
}
"""Of all those the seeds of the default run: some of each kind, and what planted faults need."""

DECIDED = ("status", "batch_time", "stages", "data_parallel", "rank_order", "schedule", "chunks", "zero_degree")
"""What a plan says that does not tell of the search."""

streams = strategies.randoms(use_true_random=False)
problems = {
    kind: streams.map(lambda random, kind=kind: random_problem(random, kind)) for kind in ("any", "mixed", "chunked")
}
quick = settings(derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))


def examine(seed: int, kind: str | None = None) -> None:
    drawn = draw(seed, kind)
    wrong = compare(drawn)
    assert not wrong or hangs_on_rounding(drawn), complaint(f"{drawn.kind} seed {seed}", drawn.problem, wrong)


@pytest.mark.parametrize(
    ("kind", "seed"),
    few(
        [(kind, seed) for kind, count in DRAWN.items() for seed in (*range(count), *TELLING.get(kind, ()))],
        *((kind, seed) for kind, seeds_now in NOW.items() for seed in seeds_now),
    ),
)
def test_the_planner_agrees_with_the_oracle(kind, seed):
    examine(seed, kind)


@pytest.mark.parametrize("reach", few([1.0, 1.3], 1.0))
@pytest.mark.parametrize("seed", few([700_000, 700_001, 700_010], 700_010))
@pytest.mark.parametrize("kind", few(DRAWN, "schedules", "mixed", "chunked", "sharded"))
def test_a_plan_found_among_few_candidates_first_changes_no_answer(kind, seed, reach, monkeypatch):
    """Problems drawn have too few candidates for that to happen by itself."""
    solver = importlib.import_module("nest.solve.dp.solver")
    monkeypatch.setattr(importlib.import_module("nest.solve.dp.attempt"), "REACH", reach)
    drawn = draw(seed, kind)
    before = as_json(solved(drawn.problem).to_dict())
    for name, value in (("SCOUTED", 1), ("SCOUTS", 1), ("SCOUT_SHARE", 2)):
        monkeypatch.setattr(solver, name, value)
    examine(seed, kind)
    after = as_json(solved(drawn.problem).to_dict())
    assert {name: after[name] for name in DECIDED} == {name: before[name] for name in DECIDED}


@pytest.mark.longer
@pytest.mark.parametrize("kind", ["any", "mixed", "chunked"])
@settings(quick, max_examples=8)
@given(data=strategies.data())
def test_the_planner_agrees_with_the_oracle_on_odd_problems(kind, data):
    problem = data.draw(problems[kind])
    wrong = disagreements(problem)
    assert not wrong, complaint("hypothesis", problem, wrong)


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks(1000, 6000))
def test_the_planner_agrees_with_the_oracle_on_many(block):
    for seed in block:
        examine(seed)


@pytest.mark.slow
@settings(quick, max_examples=400)
@given(problem=problems["any"])
def test_the_planner_agrees_with_the_oracle_on_many_odd_problems(problem):
    wrong = disagreements(problem)
    assert not wrong, complaint("hypothesis", problem, wrong)


def test_every_kind_is_drawn():
    assert set(DRAWN) == set(SHARES)


def evaluation_problem(seed: int) -> dict | None:
    """A problem whose `fixed` says everything but the placement of the one candidate it has."""
    random = Random(seed)
    problem = random_problem(random, "plain")
    for key in ("search", "constraints", "fixed"):
        problem.pop(key, None)
    plan = random_plan(random, problem)
    if plan is None:
        return None
    profile = problem["profile"]
    profile["candidates"] = [c for c in profile["candidates"] if c["name"] == plan["stages"][0]["candidate"]]
    problem["fixed"] = {
        "replicas": plan["replicas"],
        "rank_order": plan["rank_order"],
        "schedule": plan["schedule"],
        "zero": plan["stages"][0]["zero"],
        "recompute": plan["stages"][0]["recompute"],
        "stages": [[profile["layers"][layer] for layer in stage["layers"]] for stage in plan["stages"]],
    }
    return problem


@pytest.mark.parametrize("seed", seeds(12, 60))
def test_an_evaluated_plan_is_the_fixed_one_and_priced_as_the_oracle_does(seed):
    problem = evaluation_problem(seed)
    if problem is None:
        return
    fixed = problem["fixed"]
    document = as_json(planner().evaluate(problem).to_dict())
    assert check_document(document, searched=False) == [], json.dumps(problem)
    assert document["data_parallel"] == fixed["replicas"]
    assert document["rank_order"] == fixed["rank_order"]
    assert document["schedule"] == fixed["schedule"]
    assert [set(stage["layers"]) for stage in document["stages"]] == [set(s) for s in fixed["stages"]]
    assert {(s["zero"], s["recompute"]) for s in document["stages"]} == {(fixed["zero"], fixed["recompute"])}


def chunked_evaluation(seed: int) -> tuple[dict, dict] | None:
    """A problem whose `fixed` says which layers are on which stage in how many chunks, and a plan of it."""
    random = Random(seed)
    problem = random_problem(random, "chunked")
    for key in ("search", "constraints", "fixed"):
        problem.pop(key, None)
    problem["training"]["schedule"] = ["interleaved"]
    plan = next((plan for _ in range(20) if (plan := random_plan(random, problem)) is not None), None)
    if plan is None:
        return None
    profile, first = problem["profile"], plan["stages"][0]
    profile["candidates"] = [c for c in profile["candidates"] if c["name"] == first["candidate"]]
    decided = {name: first[name] for name in ("zero", "recompute")}
    decided |= {name: plan[name] for name in ("replicas", "rank_order", "schedule", "chunks")}
    layers = [[profile["layers"][layer] for layer in stage["layers"]] for stage in plan["stages"]]
    problem["fixed"] = decided | {"stages": layers}
    return problem, plan


@pytest.mark.parametrize("seed", seeds(12, 60))
def test_evaluated_chunks_are_those_of_the_stages_and_priced_as_the_oracle_does(seed):
    drawn = chunked_evaluation(seed)
    if drawn is None:
        return
    problem, plan = drawn
    document = as_json(planner().evaluate(problem).to_dict())
    assert check_document(document, searched=False) == [], json.dumps(problem)
    assert document["chunks"] == plan["chunks"] > 1
    assert [stage["layers"] for stage in document["stages"]] == [
        [problem["profile"]["layers"][layer] for layer in stage["layers"]] for stage in plan["stages"]
    ]
    assert planner().check(document).ok


@pytest.mark.longer
@pytest.mark.parametrize(("file", "lines"), [("optima.jsonl", 48), ("chains.jsonl", 37)])
def test_the_planner_finds_the_published_optima(shared, file, lines):
    records = [json.loads(line) for line in (shared / "small" / file).read_text().splitlines()]
    assert len(records) >= lines
    wrong = []
    for record in records:
        document = as_json(planner().solve(record["problem"]).to_dict())
        name = f"{file} seed {record['seed']}"
        if not same(document["batch_time"], record["batch_time"]):
            wrong.append(f"{name}: {document['batch_time']} instead of {record['batch_time']}")
        wrong += [f"{name}: {line}" for line in check_document(document)]
        if not planner().check(document).ok:
            wrong.append(f"{name}: nest check refuses the plan")
    assert not wrong, "\n".join(wrong)
