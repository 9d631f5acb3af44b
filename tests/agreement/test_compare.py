"""The comparison itself: it is silent about a right planner and names what a wrong one gets wrong."""

from random import Random
from types import SimpleNamespace

import pytest

from tests.agreement import compare
from tests.agreement.problems import random_plan, random_problem
from tests.oracle.brute_force import Answer, solve
from tests.oracle.document import document_of
from tests.oracle.price import price, violations

INFEASIBLE = {
    "status": "infeasible",
    "batch_time": None,
    "lower_bound": None,
    "throughput": None,
    "candidate": None,
    "fits": False,
    "stages": [],
}


def planner_that(answers):
    """A planner that solves as the function says and whose check accepts everything."""

    def solve_as_told(problem):
        plan = answers(problem)
        diagnosis = f"the least is {solve(problem).reachable_memory} bytes"
        infeasible = INFEASIBLE | {"problem": problem, "diagnosis": diagnosis}
        document = infeasible if plan is None else document_of(problem, plan)
        return SimpleNamespace(to_dict=lambda: document)

    return SimpleNamespace(solve=solve_as_told, check=lambda _: SimpleNamespace(ok=True))


def slower_plan(problem: dict) -> dict | None:
    """A plan that fits and keeps the rules but is slower than the best."""
    random = Random(0)
    best = solve(problem).batch_time
    for _ in range(50):
        plan = random_plan(random, problem)
        if plan is None or best is None or violations(problem, plan):
            continue
        numbers = price(problem, plan)
        if numbers["fits"] and numbers["batch_time"] > best * 1.001:
            return plan
    return None


@pytest.mark.longer
def test_a_slower_plan_is_noticed(monkeypatch):
    monkeypatch.setattr(compare, "planner", lambda: planner_that(slower_plan))
    noticed = 0
    for seed in range(15):
        problem = random_problem(Random(seed))
        if slower_plan(problem) is not None:
            noticed += 1
            assert any("batch_time" in line for line in compare.disagreements(problem))
    assert noticed > 5


@pytest.mark.longer
def test_a_wrong_infeasible_is_noticed(monkeypatch):
    monkeypatch.setattr(compare, "planner", lambda: planner_that(lambda _: None))
    problem = next(p for p in map(random_problem, map(Random, range(60))) if solve(p).plan is not None)
    assert any("status" in line for line in compare.disagreements(problem))


def test_a_diagnosis_without_the_bytes_is_noticed():
    answer = Answer(None, None, 1234.5)
    assert compare.check_diagnosis({"diagnosis": "it needs 1234.5 bytes"}, answer) == []
    assert compare.check_diagnosis({"diagnosis": "it needs 1.2345e+03 bytes (0.00 GiB)"}, answer) == []
    assert compare.check_diagnosis({"diagnosis": "it needs 1235 bytes"}, answer) != []


@pytest.mark.parametrize("kind", ["plain", "mixed"])
def test_a_tie_decided_for_more_devices_is_noticed(kind):
    problems = (random_problem(Random(seed), kind) for seed in range(50))
    problem, answer = next((each, found) for each in problems if (found := solve(each)).plan is not None)
    document = document_of(problem, answer.plan)
    assert compare.check_tie(document, answer) == []
    document["data_parallel"] += 1
    assert compare.check_tie(document, answer) != []


def test_only_where_plans_are_replayed_may_a_plan_be_left_open():
    problem = {"training": {"schedule": "gpipe", "price": "replay"}}
    answer, document = Answer(10.0, {}, None), {"status": "feasible", "batch_time": 11.0, "lower_bound": 9.0}
    assert compare.left_open(problem, document, answer)
    assert not compare.left_open({"training": {"schedule": "gpipe"}}, document, answer)
    assert not compare.left_open(problem, {**document, "status": "optimal"}, answer)
    assert not compare.left_open(problem, {**document, "lower_bound": 10.1}, answer)
    assert not compare.left_open(problem, {**document, "batch_time": 9.9}, answer)
