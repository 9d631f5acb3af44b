"""The planner against the oracle on random problems, and against published optima."""

import json
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings, strategies

from tests.agreement.compare import as_json, complaint, disagreements, planner
from tests.agreement.problems import random_plan, random_problem
from tests.oracle.check import check_document, same

streams = strategies.randoms(use_true_random=False)
problems = streams.map(random_problem)
mixed_problems = streams.map(lambda random: random_problem(random, "mixed"))
chunked_problems = streams.map(lambda random: random_problem(random, "chunked"))
quick = settings(derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))


def examine(name: str, problem: dict) -> None:
    wrong = disagreements(problem)
    assert not wrong, complaint(name, problem, wrong)


@pytest.mark.parametrize("seed", range(150))
def test_the_planner_agrees_with_the_oracle(seed):
    examine(f"seed {seed}", random_problem(Random(seed)))


@settings(quick, max_examples=25)
@given(problem=problems)
def test_the_planner_agrees_with_the_oracle_on_odd_problems(problem):
    examine("hypothesis", problem)


@pytest.mark.parametrize("seed", range(100))
def test_the_planner_agrees_with_the_oracle_where_candidates_mix(seed):
    examine(f"mixed seed {seed}", random_problem(Random(seed), "mixed"))


@settings(quick, max_examples=20)
@given(problem=mixed_problems)
def test_the_planner_agrees_with_the_oracle_on_odd_problems_where_candidates_mix(problem):
    examine("hypothesis", problem)


@pytest.mark.parametrize("seed", range(100))
def test_the_planner_agrees_with_the_oracle_where_chunks_are_dealt(seed):
    examine(f"chunked seed {seed}", random_problem(Random(seed), "chunked"))


@settings(quick, max_examples=20)
@given(problem=chunked_problems)
def test_the_planner_agrees_with_the_oracle_on_odd_problems_where_chunks_are_dealt(problem):
    examine("hypothesis", problem)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 3000))
def test_the_planner_agrees_with_the_oracle_on_many_where_chunks_are_dealt(seed):
    examine(f"chunked seed {seed}", random_problem(Random(seed), "chunked"))


@pytest.mark.parametrize("kind", ["plain", "mixed"])
@pytest.mark.parametrize("seed", range(80))
def test_the_planner_agrees_with_the_oracle_where_shard_groups_are_chosen(seed, kind):
    examine(f"sharded {kind} seed {seed}", random_problem(Random(seed), kind, sharded=True))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "mixed"])
@pytest.mark.parametrize("seed", range(1000, 2000))
def test_the_planner_agrees_with_the_oracle_on_many_where_shard_groups_are_chosen(seed, kind):
    examine(f"sharded {kind} seed {seed}", random_problem(Random(seed), kind, sharded=True))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 2500))
def test_the_planner_agrees_with_the_oracle_on_many_where_candidates_mix(seed):
    examine(f"mixed seed {seed}", random_problem(Random(seed), "mixed"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 3000))
def test_the_planner_agrees_with_the_oracle_on_many(seed):
    examine(f"seed {seed}", random_problem(Random(seed)))


@pytest.mark.slow
@settings(quick, max_examples=400)
@given(problem=problems)
def test_the_planner_agrees_with_the_oracle_on_many_odd_problems(problem):
    examine("hypothesis", problem)


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


@pytest.mark.parametrize("seed", range(30))
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
    """A problem whose `fixed` says how many chunks are dealt to how many stages, and a plan of it."""
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
    problem["fixed"] = decided | {"pp": len(plan["stages"])}
    return problem, plan


@pytest.mark.parametrize("seed", range(30))
def test_evaluated_chunks_are_the_even_split_and_priced_as_the_oracle_does(seed):
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
