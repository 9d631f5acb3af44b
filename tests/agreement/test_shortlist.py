"""The shortlist against every plan of small problems, each spelled out and priced by the oracle."""

from random import Random

import pytest

from nest.api import shortlist
from tests.agreement.problems import random_problem
from tests.oracle.check import check_document, same
from tests.oracle.enumerate_plans import every_plan
from tests.oracle.price import price

TINY = 1500
"""Explicit plans at most, so that pricing each takes a moment."""

COUNT = 5


def told_apart_by(stages, replicas, schedule, chunks):
    """What plans of a shortlist differ in: what all their stages share, and what some of them use."""
    shared = (replicas, len(stages), (schedule, chunks) if len(stages) > 1 else None)
    names = ("candidate", "zero", "recompute")
    return shared, {(name, stage[name]) for stage in stages for name in names}


def of_plan(plan):
    return told_apart_by(plan["stages"], plan["replicas"], plan["schedule"], plan["chunks"])


def of_document(document):
    return told_apart_by(document["stages"], document["data_parallel"], document["schedule"], document["chunks"])


def covered(plan, listed):
    (shared, used), found = of_plan(plan), [of_document(each) for each in listed]
    return any(shared == theirs and used >= parts for theirs, parts in found)


def priced_plans(problem):
    """Step times of all plans that fit, each with its plan; None where there are too many to price."""
    found = []
    for plan in every_plan(problem, limit=TINY):
        if plan is None:
            return None
        priced = price(problem, plan)
        if priced["fits"]:
            found.append((priced["batch_time"], plan))
    return found


def examine(problem, plans):
    documents = [entry.plan.to_dict() for entry in shortlist(problem, COUNT)]
    if not plans:
        assert [each["status"] for each in documents] == ["infeasible"]
        return
    for place, document in enumerate(documents):
        assert not check_document(document)
        left = [seconds for seconds, plan in plans if not covered(plan, documents[:place])]
        assert same(document["batch_time"], min(left)), f"plan {place + 1}"
    assert len(documents) == COUNT or all(covered(plan, documents) for _, plan in plans)


@pytest.mark.parametrize("kind", ["plain", "mixed", "chunked"])
def test_each_plan_is_the_best_of_those_that_no_better_one_covers(kind):
    compared = 0
    for seed in range(14):
        random = Random(seed)
        problem = random_problem(random, kind)
        if kind == "mixed":
            search = problem.setdefault("search", {})
            search["zero"] = random.sample(search.get("zero", range(4)), 1)
        plans = priced_plans(problem)
        if plans is not None:
            compared += 1
            examine(problem, plans)
    assert compared > 3
