"""The chain program against the brute force where both can run, and against optima of an independent exact program."""

import json
from random import Random

import pytest

from tests.agreement.problems import random_problem
from tests.oracle.brute_force import solve
from tests.oracle.chain_program import Table, solve_chain
from tests.oracle.check import same
from tests.oracle.network import Network
from tests.oracle.price import price, violations
from tests.oracle.settings import settings


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


def test_levels_between_slots_are_those_of_the_devices():
    compared = 0
    for seed in range(15):
        problem = straightened(random_problem(Random(seed), "plain"))
        network = Network(problem["cluster"])
        for setting in settings(problem, network):
            levels = Table(problem, network, setting).levels
            width = setting.width
            for one, two in setting.placements([width, width]):
                expected = setting.level_between(network, (one, width), (two, width))
                assert levels[one // width, two // width] == expected
                compared += 1
    assert compared > 300


@pytest.mark.longer
def test_the_chain_program_finds_published_optimum(shared):
    lines = (shared / "small" / "chains.jsonl").read_text().splitlines()
    assert len(lines) >= 37
    for line in lines[::4]:
        record = json.loads(line)
        answer = solve_chain(record["problem"])
        assert same(answer.batch_time, record["batch_time"]), record["seed"]


@pytest.mark.parametrize(
    "change",
    [
        {"constraints": ["pp == 1"]},
        {"fixed": {"pp": 1}},
        {"search": {"mixed": True}},
        {"profile": {"layers": ["a", "b"], "edges": [[1, 0]], "candidates": []}},
    ],
)
def test_what_the_chain_program_does_not_plan_is_refused(change):
    problem = straightened(random_problem(Random(0), "plain"))
    with pytest.raises(ValueError, match="the chain program"):
        solve_chain(problem | change)
