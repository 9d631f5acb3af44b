"""The shortlist against every plan of small problems, each spelled out and priced by the oracle."""

from itertools import product
from random import Random

import pytest

from nest.api import shortlist
from tests.agreement.problems import random_problem
from tests.agreement.random_pools import random_pool_problem
from tests.oracle.check import check_document, same
from tests.oracle.enumerate_plans import every_plan
from tests.oracle.partitions import partitions
from tests.oracle.pools import Search, violations
from tests.oracle.pools import price as price_on_pools
from tests.oracle.price import price
from tests.seeds import seeds

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


def plans_on_pools(problem, limit):
    """Step times of all plans on pools that fit and constraints allow; None where there are too many to price."""
    every = partitions(len(problem["profile"]["layers"]), problem["profile"]["edges"])
    zeros, modes, found, count = problem.get("search", {}).get("zero", [0, 1, 2, 3]), {}, [], 0
    for pipeline, replicas, order, degree, settings, chosen in Search(problem).shared_settings():
        for pool, candidate in chosen.items():
            modes[pool] = list(product(candidate["recompute"], zeros))
        for partition in every:
            for pools in product(settings, repeat=len(partition)):
                if set(pools) != set(settings):
                    continue
                places = [settings[p].placements([settings[p].width] * pools.count(p)) for p in settings]
                for offsets, used in product(product(*map(list, places)), product(*(modes[p] for p in pools))):
                    count += 1
                    if count > limit:
                        return None
                    left = {pool: iter(own) for pool, own in zip(settings, offsets, strict=True)}
                    stages = [
                        {
                            "layers": list(layers),
                            "candidate": chosen[pool]["name"],
                            "offset": next(left[pool]),
                            "recompute": mode,
                            "zero": zero,
                        }
                        for layers, pool, (mode, zero) in zip(partition, pools, used, strict=True)
                    ]
                    shared = {"replicas": replicas, "rank_order": order, "schedule": pipeline.name}
                    plan = {**shared, "zero_degree": degree, "stages": stages}
                    if violations(problem, plan):
                        continue
                    priced = price_on_pools(problem, plan)
                    if priced["fits"]:
                        found.append((priced["batch_time"], {**plan, "chunks": 1}))
    return found


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(2, of=20))
def test_on_pools_each_plan_is_the_best_of_those_that_no_better_one_covers(seed):
    compared, random = 0, Random(seed)
    while compared < 2:
        problem = random_pool_problem(random)
        problem["search"] = {**problem.get("search", {}), "zero": [0], "rank_order": ["pp-inner"]}
        plans = plans_on_pools(problem, TINY // 5)
        if plans is not None and (seed % 2 or len({each["candidate"] for _, p in plans for each in p["stages"]}) > 2):
            compared += 1
            examine(problem, plans)
