"""Plans on several pools: what must hold of them whatever the numbers, and instances whose answer is known."""

import importlib
from collections import Counter
from itertools import groupby
from random import Random
from typing import Any

import pytest
from attrs import evolve

import nest
from nest.formulate.instance import build_instance
from nest.hooks.registry import registry
from nest.instance import Solution
from nest.io import structure
from nest.plan.evaluate import evaluate
from nest.plan.legality import structure_violations
from nest.solve.dp.downsets import allowed_cuts, lattice, membership
from nest.solve.dp.pool_configurations import PoolListing
from nest.solve.dp.pools import PoolNode, PoolSearch
from nest.solve.dp.rules import Exclusions
from nest.solve.solver import solve
from nest.spec import Problem
from nest_cpsat import Price, verify
from tests.agreement.problems import random_problem
from tests.agreement.random_pools import random_pool_problem
from tests.oracle.check import same
from tests.oracle.pools import Search
from tests.oracle.pools import solve as oracle
from tests.pooled_problems import solution_of, two_pools
from tests.seeds import seeds


def alone(problem: dict[str, Any]) -> dict[str, Any]:
    """A plain problem as one whose cluster is a single pool."""
    pool = {"name": "only", **problem["cluster"]}
    candidates = [{**each, "pool": "only"} for each in problem["profile"]["candidates"]]
    profile = {**problem["profile"], "candidates": candidates}
    return {**problem, "cluster": {"pools": [pool]}, "profile": profile}


@pytest.mark.parametrize("seed", seeds(5, of=100))
def test_a_single_pool_is_a_cluster(seed: int) -> None:
    problem = random_problem(Random(seed), "plain")
    before, after = nest.solve(problem).to_dict(), nest.solve(alone(problem)).to_dict()
    assert before["status"] == after["status"]
    assert before["batch_time"] == after["batch_time"]
    for stage, pooled in zip(before["stages"], after["stages"], strict=True):
        assert {**stage, "pool": "only"} == pooled


class OneWay(Search):
    """The oracle's search of the plans that never come back to a pool."""

    def try_stages(self, shared: Any, partition: Any, pools: Any) -> None:
        if len(list(groupby(pools))) == len(set(pools)):
            super().try_stages(shared, partition, pools)


def there_and_back() -> dict[str, Any]:
    """A model whose middle only the large devices can hold, and whose ends the fast ones are there for."""
    problem = two_pools()
    for each in problem["profile"]["candidates"]:
        first = [4.0, 4.0, 70.0, 4.0, 4.0]
        each["recompute"]["none"] |= {"first": first, "more": [0.0] * 5}
        each["edge_bytes"] = [0.5] * 4
    problem["training"]["global_batch"] = 16
    problem["search"] = {"zero": [0], "rank_order": ["pp-inner"]}
    return problem


@pytest.mark.longer
def test_a_pipeline_may_come_back_to_a_pool() -> None:
    problem = there_and_back()
    plan, answer = nest.solve(problem), oracle(problem)
    assert same(plan.batch_time, answer.batch_time)
    assert [stage.pool for stage in plan.stages] == ["fast", "slow", "fast", "slow"]
    assert plan.batch_time is not None
    straight = OneWay(problem).run().batch_time
    assert plan.batch_time < 0.95 * straight


def test_of_equally_fast_plans_the_one_with_fewer_devices_then_stages_then_pools_is_taken() -> None:
    problem = two_pools()
    for each in problem["profile"]["candidates"]:  # Twice as many devices are no faster, nor is either pool.
        each["forward"], each["backward"] = [1.0] * 5, [2.0] * 5
    problem["training"]["global_batch"] = 1
    for pool in problem["cluster"]["pools"]:
        pool["memory"] = 1000.0
    plan = nest.solve(problem)
    assert [(stage.pool, stage.devices) for stage in plan.stages] == [("fast", (0, 1))]


@pytest.mark.parametrize("seed", seeds(10, of=80))
def test_bounds_of_nodes_are_below_every_plan_in_them(seed: int) -> None:
    problem = random_pool_problem(Random(f"bounds {seed}"))
    answer = oracle(problem)
    if answer.plan is None or len({stage["candidate"] for stage in answer.plan["stages"]}) < 2:
        return
    instance = build_instance(structure(problem, Problem), registry())
    solution = solution_of(instance, answer.plan)
    value = evaluate(instance, solution).batch_time
    downsets = lattice(membership(allowed_cuts(instance, []), len(instance.graph.layers)))
    listing = PoolListing(instance, downsets.most_stages, Exclusions())
    listed = listing.listed()
    search = PoolSearch(instance, [each for _, each in listed], downsets, bounds=[bound for bound, _ in listed])
    search.compute = listing.compute
    used = {stage.candidate for stage in solution.stages}
    split = tuple(
        sum(stage.candidate == index for stage in solution.stages) for index in sorted(used, key=instance.pool_of)
    )
    held = []
    for node in search.nodes(float("inf")):
        decided = node.node
        assert isinstance(decided, PoolNode)
        configuration = decided.configuration
        if (
            {index for index, _ in configuration.members} != used
            or configuration.replicas != solution.replicas
            or configuration.rank_order != solution.rank_order
            or configuration.schedule.name != solution.schedule
        ):
            continue
        assert node.bound <= value * (1 + 1e-9)
        pruned: Counter[str] = Counter()
        for screened in decided.branch(value * (1 + 1e-9), pruned):
            for leaf in screened.node.branch(value * (1 + 1e-9), pruned):
                if leaf.node.split == split:  # type: ignore[attr-defined]
                    assert screened.bound <= value * (1 + 1e-9)
                    assert leaf.bound <= value * (1 + 1e-9)
                    held.append(leaf)
    # Of shard groups that change nothing one stands for all.
    assert held or instance.space.zero_degrees != (None,)


def test_a_search_that_is_stopped_gives_its_bound() -> None:
    plan, whole = nest.solve(two_pools(), time_limit=1e-6), nest.solve(two_pools())
    assert plan.status in ("feasible", "optimal")
    assert plan.lower_bound is not None
    assert whole.batch_time is not None
    assert plan.lower_bound <= whole.batch_time * (1 + 1e-9)


@pytest.mark.parametrize("seed", [134, 197, 208])
def test_blocks_leave_slots_free_where_that_pays(seed: int) -> None:
    problem = random_pool_problem(Random(seed))
    assert same(nest.solve(problem).batch_time, oracle(problem).batch_time)


@pytest.mark.longer
def test_what_does_not_fit_into_memory_is_left_with_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("nest.solve.dp.pools"), "ENTRY_BYTES", 0)
    left = 0
    for seed in (15, 32, 59):  # Where it matters which slots blocks have.
        problem = random_pool_problem(Random(seed))
        answer = oracle(problem).batch_time
        assert answer is not None
        plan = nest.solve(problem)
        assert plan.lower_bound is not None
        assert plan.batch_time is not None
        assert plan.lower_bound * (1 - 1e-9) <= answer <= plan.batch_time * (1 + 1e-9)
        unsearched = plan.statistics["settled_by"].get("places that do not fit into memory", 0)
        assert unsearched or plan.status == "optimal"
        left += plan.status == "feasible"
    assert left == 2


def test_without_a_plan_the_pool_that_lacks_least_is_told() -> None:
    problem = two_pools()
    for pool in problem["cluster"]["pools"]:
        pool["memory"] = 10.0
    problem["search"] = {"zero": [0], "rank_order": ["pp-inner"]}
    plan, answer = nest.solve(problem), oracle(problem)
    assert plan.status == "infeasible"
    assert answer.reachable_memory is not None
    assert f", {answer.reachable_memory:.6g} B less" in str(plan.diagnosis)
    assert "on its fullest device in pool '" in str(plan.diagnosis)


def test_constraints_that_leave_nothing_are_told() -> None:
    plan = nest.solve(two_pools(constraints=["pp > 50"]))
    assert plan.status == "infeasible"
    assert "pp > 50" in str(plan.diagnosis)


@pytest.mark.parametrize("seed", seeds(10, of=60))
def test_stages_split_alike_are_the_best_of_each_split(seed: int) -> None:
    """What a framework that splits all stages alike can run is what one way of splitting them leaves."""
    problem = random_pool_problem(Random(seed))
    instance = build_instance(structure(problem, Problem), registry())
    instance = evolve(instance, space=evolve(instance.space, alike=True))
    by_split: dict[tuple[object, ...], list[Any]] = {}
    for each, written in zip(instance.candidates, problem["profile"]["candidates"], strict=True):
        by_split.setdefault(each.split, []).append(written)
    expected = [
        nest.solve({**problem, "profile": {**problem["profile"], "candidates": own}}).batch_time
        for own in by_split.values()
    ]
    least = min((each for each in expected if each is not None), default=None)
    result = solve(instance)
    assert same(result.batch_time, least)

    def pricing(solution: Solution) -> Price:
        assert structure_violations(instance, solution) == []
        priced = evaluate(instance, solution)
        return Price(priced.batch_time, priced.overfull)

    assert verify(instance, least, pricing).status == "proved"
