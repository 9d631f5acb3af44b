"""The oracle on pools against the optima of an independent brute force, and against every plan of a small problem."""

import json
from itertools import islice, product
from random import Random

import pytest

from tests.agreement.random_pools import random_pool_problem
from tests.oracle.check import same
from tests.oracle.partitions import partitions
from tests.oracle.parts import choices
from tests.oracle.pools import Search, price, solve, violations
from tests.oracle.test_optima import explicit
from tests.pooled_problems import plan, two_pools


def published(record: dict) -> dict:
    """A published plan in the oracle's form."""
    decided = explicit({**record, "plan": {**record["plan"], "candidate": None}})
    for stage, pool in zip(decided["stages"], record["plan"]["pools"], strict=True):
        stage["candidate"] = record["plan"]["candidates"][pool]
    return decided


@pytest.mark.longer
def test_the_oracle_finds_every_published_optimum_on_pools(shared):
    records = [json.loads(line) for line in (shared / "pools" / "optima.jsonl").read_text().splitlines()]
    assert len(records) >= 41
    for record in records:
        assert same(solve(record["problem"]).batch_time, record["batch_time"]), record["seed"]
        if record["plan"] is not None:
            numbers = price(record["problem"], published(record))
            assert numbers["fits"], record["seed"]
            assert same(numbers["batch_time"], record["batch_time"]), record["seed"]
            assert violations(record["problem"], published(record)) == [], record["seed"]


FEW = 500
"""Plans of a problem that are spelled out at most."""


def every_plan(problem: dict):
    """All plans of one replica with all placements, rules and memory aside."""
    search, profile = Search(problem), problem["profile"]
    zeros = problem.get("search", {}).get("zero", range(4))
    for *shared, settings, chosen in search.shared_settings():
        if shared[1] > 1:
            continue
        search.settings, search.chosen, search.known = settings, chosen, {}
        for partition in partitions(len(profile["layers"]), profile["edges"]):
            for pools in product(settings, repeat=len(partition)):
                modes = [product(choices(problem, chosen[pool]), zeros) for pool in pools]
                if set(pools) == set(settings) and shared[0].admits(len(pools), settings[pools[0]].micro_batches):
                    for offsets, choice in product(every_place(settings, pools), product(*modes)):
                        yield search.describe(shared, partition, pools, offsets, choice)


def every_place(settings: dict, pools) -> list[tuple[int, ...]]:
    """Offsets of the stages, in order in each pool."""
    own = [list(setting.placements([setting.width] * pools.count(pool))) for pool, setting in settings.items()]
    found = []
    for places in product(*own):
        following = dict(zip(settings, map(iter, places), strict=True))
        found.append(tuple(next(following[pool]) for pool in pools))
    return found


def spelled_out(problem: dict) -> list[dict] | None:
    """The plans that keep the rules; None: there are too many to look at."""
    every = list(islice(every_plan(problem), FEW + 1))
    return None if len(every) > FEW else [price(problem, each) for each in every if not violations(problem, each)]


@pytest.mark.longer
def test_no_plan_that_is_spelled_out_is_better_on_pools():
    compared = decided = 0
    for seed in range(60):
        random = Random(seed)
        problem = random_pool_problem(random)
        problem.setdefault("search", {})["zero"] = random.choice([[0], [1], [0, 1]])
        problem["training"]["price"] = "replay"
        problem["constraints"] = ["replicas == 1"]
        for candidate in problem["profile"]["candidates"]:
            kept = random.sample(list(candidate["recompute"]), min(2, len(candidate["recompute"])))
            candidate["recompute"] = {mode: candidate["recompute"][mode] for mode in kept}
        plans = spelled_out(problem)
        if plans is None:
            continue
        best = min((each["batch_time"] for each in plans if each["fits"]), default=None)
        assert same(solve(problem).batch_time, best, 1e-12), seed
        compared += best is not None
        decided += any(each["batch_time"] == best > each["closed_form"] for each in plans)
    assert compared > 10
    assert decided > 1


def test_a_message_between_pools_goes_over_the_link_that_joins_them():
    numbers = price(two_pools(), plan([([0, 1, 2], "fast1", 0), ([3, 4], "slow1", 0)]))
    front, behind = numbers["stages"]
    assert same(front["time"], 3 * 2.2 + 0.05 + 5 / 10)
    assert same(behind["time"], 1.7 * 3 * 1.8 + 0.05 + 5 / 10)
    assert (front["level_in"], front["level_out"], behind["level_in"], behind["level_out"]) == (-1, 2, 2, -1)
