"""The proof on pools: it agrees with brute force, refutes what is worse, and knows every plan of section 8."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cpsat_tests.asking import CLOSE, ask, instance_of, settles
from cpsat_tests.without_bounds import leave_cases_to_models
from nest_cpsat import bounds, search
from tests.agreement.random_parts import recompute_parts
from tests.agreement.random_pools import random_plan, random_pool_problem
from tests.oracle.pools import price, solve, violations
from tests.pooled_problems import candidate, two_pools
from tests.seeds import blocks, seeds


def slower_plan(random: Random, problem: dict[str, Any], best: float) -> float | None:
    """Seconds of some plan that is not the best."""
    for _ in range(30):
        decided = random_plan(random, problem, random.choice([1, 2, 3]))
        if decided is not None and not violations(problem, decided):
            numbers = price(problem, decided)
            if numbers["fits"] and numbers["batch_time"] > best * (1 + 2 * CLOSE):
                return float(numbers["batch_time"])
    return None


def examine(seed: int, *, parts: bool = False) -> None:
    """What brute force finds is proved, as is that there is nothing; what is slower is refuted, by the best."""
    random = Random(seed)
    problem = random_pool_problem(random)
    if parts:
        recompute_parts(random, problem)
    best = solve(problem).batch_time
    worse = None if best is None else slower_plan(random, problem, best)
    slower = [] if worse is None else [worse / best]
    settles(instance_of(problem), best, 1 + 1e-5, 1.5, *slower)


@pytest.mark.parametrize("seed", seeds(6, 100))
def test_it_agrees_with_brute_force(seed: int) -> None:
    examine(seed)


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(3, 60))
def test_it_agrees_where_stages_recompute_their_first_layers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "FEW_CASES", 0)
    examine(seed, parts=True)


@pytest.mark.parametrize("seed", seeds(6, 60))
def test_it_agrees_with_brute_force_case_by_case(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small problems are asked in one model without bounds; here each case is, after the bounds."""
    monkeypatch.setattr(search, "FEW_CASES", 0)
    examine(1000 + seed)


@pytest.mark.parametrize("seed", seeds(3, 60))
def test_its_models_agree_with_brute_force(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds settle most cases; here they only narrow what stages can be."""
    monkeypatch.setattr(search, "FEW_CASES", 0)
    monkeypatch.setattr(bounds.Relaxation, "of", lambda *_: 0.0)
    leave_cases_to_models(monkeypatch)
    examine(2000 + seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks(3000, 3600))
def test_it_agrees_with_brute_force_on_many(block: range) -> None:
    for seed in block:
        examine(seed)


@pytest.mark.longer
@pytest.mark.parametrize("third", seeds(1, of=3))
def test_every_published_optimum_is_proved(shared: Path, third: int) -> None:
    """Of those with a plan, what is slower by a little is refuted."""
    for line in (shared / "pools" / "optima.jsonl").read_text().splitlines()[third::3]:
        record = json.loads(line)
        assert ask(instance_of(record["problem"]), record["batch_time"]).status == "proved", record["seed"]


def there_and_back(**changes: Any) -> dict[str, Any]:
    """Two devices with the room for one large layer each, one beside them with the room for the others."""
    problem = two_pools(**changes)
    sizes = [50.0, 4.0, 50.0]
    for pool, memory in zip(problem["cluster"]["pools"], (80.0, 40.0), strict=True):
        pool["memory"] = memory
    problem["training"] = {"global_batch": 1}
    problem["search"] = {"zero": [0]}
    problem["profile"] = {
        "layers": ["front", "middle", "behind"],
        "edges": [[0, 1], [1, 2]],
        "candidates": [candidate("fast1", "fast", 1, [1.0, 4.0, 1.0]), candidate("slow1", "slow", 1, [9.0, 1.0, 9.0])],
    }
    for each in problem["profile"]["candidates"]:
        each["recompute"]["none"]["first"] = sizes
    return problem


def test_a_pipeline_that_comes_back_to_a_pool_is_found() -> None:
    """The layer between two that one pool is fast at is one the other is fast at."""
    problem = there_and_back()
    best = solve(problem)
    instance = instance_of(problem)
    answer = ask(instance, best.batch_time * 1.01)
    assert answer.status == "refuted"
    assert answer.better is not None
    pools = [instance.candidates[stage.candidate].pool for stage in answer.better.stages]
    assert pools == ["fast", "slow", "fast"]
    assert ask(instance, best.batch_time).status == "proved"
