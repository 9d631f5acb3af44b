"""The chain program against the brute force where both can run, and against optima of an independent exact program."""

import json
from random import Random

import pytest

from tests.agreement.problems import random_problem
from tests.oracle.brute_force import solve
from tests.oracle.chain_program import solve_chain
from tests.oracle.check import same
from tests.oracle.price import price, violations


def straightened(problem: dict) -> dict:
    """The problem on a chain and without rules."""
    count = len(problem["profile"]["layers"])
    random = Random(count)
    problem["profile"]["edges"] = [[layer, layer + 1] for layer in range(count - 1)]
    for candidate in problem["profile"]["candidates"]:
        sizes = candidate["edge_bytes"] or [1.0]
        candidate["edge_bytes"] = [random.choice(sizes) for _ in range(count - 1)]
    return {key: value for key, value in problem.items() if key not in ("constraints", "fixed")}


@pytest.mark.longer
def test_the_chain_program_agrees_with_the_brute_force():
    several_stages = infeasible = 0
    for seed in range(40):
        problem = straightened(random_problem(Random(seed), "plain"))
        answer, expected = solve_chain(problem), solve(problem)
        assert same(answer.batch_time, expected.batch_time, 1e-12), seed
        assert same(answer.reachable_memory, expected.reachable_memory, 1e-12), seed
        if answer.plan is None:
            infeasible += 1
            continue
        several_stages += len(answer.plan["stages"]) > 1
        assert violations(problem, answer.plan) == [], seed
        assert price(problem, answer.plan)["fits"], seed
    assert several_stages > 10
    assert infeasible > 1


@pytest.mark.longer
def test_the_chain_program_finds_published_optimum(shared):
    lines = (shared / "small" / "chains.jsonl").read_text().splitlines()
    assert len(lines) >= 37
    for line in lines[::4]:
        record = json.loads(line)
        answer = solve_chain(record["problem"])
        assert same(answer.batch_time, record["batch_time"]), record["seed"]
