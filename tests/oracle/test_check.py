"""The document check accepts right documents and notices every wrong number."""

import copy
import json
from random import Random

import pytest

from tests.agreement.problems import random_problem
from tests.oracle.brute_force import solve
from tests.oracle.check import check_document
from tests.oracle.document import document_of

NUMBERS = ["time", "sync_time", "memory", "in_flight", "level_in", "level_out"]


@pytest.fixture(scope="module")
def right_documents():
    """Right documents of plans with two stages or more."""
    solved = [(problem, solve(problem).plan) for problem in map(random_problem, map(Random, range(30)))]
    return [document_of(p, plan) for p, plan in solved if plan is not None and len(plan["stages"]) > 1]


@pytest.fixture
def documents(right_documents):
    return copy.deepcopy(right_documents)


def test_right_documents_pass_also_after_a_trip_through_json(documents):
    assert len(documents) > 6
    for document in documents:
        assert check_document(document) == []
        assert check_document(json.loads(json.dumps(document))) == []


@pytest.mark.parametrize("key", ["batch_time", "lower_bound", "throughput", "micro_batches"])
def test_a_wrong_total_is_noticed(key, documents):
    for document in documents:
        document[key] *= 1 + 1e-6
        assert any(key in line for line in check_document(document))


@pytest.mark.parametrize("key", NUMBERS)
def test_a_wrong_number_of_a_stage_is_noticed(key, documents):
    for original in documents:
        document = copy.deepcopy(original)
        stage = document["stages"][-1]
        stage[key] = stage[key] * (1 + 1e-6) + 1e-6
        assert any(f"stages[{len(document['stages']) - 1}].{key}" in line for line in check_document(document))


def test_a_plan_that_breaks_a_rule_is_noticed(documents):
    for original in documents:
        reversed_stages = copy.deepcopy(original)
        reversed_stages["stages"].reverse()
        assert any("in order" in line for line in check_document(reversed_stages))
        forbidden = copy.deepcopy(original)
        forbidden["problem"]["constraints"] = ["pp == 1"]
        assert any("modes may be used" in line for line in check_document(forbidden))
        cramped = copy.deepcopy(original)
        needed = max(s["memory"] for s in original["stages"])
        cramped["problem"]["cluster"]["memory"] = needed * 0.999
        assert needed == 0 or any("exceeds the memory" in line for line in check_document(cramped))
