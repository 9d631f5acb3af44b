"""How many nodes of each pool a training needs: every mixture is solved, and answers are the best of all of these."""

from itertools import product
from typing import Any

import pytest

import nest
from nest.formulate.problem import read_record, self_contained
from nest.hooks.registry import registry
from nest.spec import Problem
from nest_studies.clusters.mixtures import Mixtures
from nest_studies.clusters.recommendation import recommendation_text

STEPS = -(-100_000_000_000 // (48 * 1024))
NODES = (2, 3)
PRICES = (6.0, 2.0)
EGRESS = 50.0
"""Of a gigabyte, so that it matters."""


def problem(**changes: Any) -> dict[str, Any]:
    """GPT-2 on two nodes of new devices and three of old ones, two in each."""
    node, between = {"fanout": 2, "bandwidth": 300e9, "link": "nvlink3"}, {"bandwidth": 25e9, "link": "infiniband-hdr"}
    pools = [
        {"name": name, "device": device, "levels": [node, {**between, "fanout": count}], "price": price}
        for name, device, count, price in zip(("new", "old"), ("h100-sxm", "a100-sxm-80g"), NODES, PRICES, strict=True)
    ]
    return {
        "nest": 1,
        "model": "gpt2",
        "cluster": {
            "pools": pools,
            "between": [{"pools": ["new", "old"], "bandwidth": 10e9, "latency": 1e-5, "egress": EGRESS}],
        },
        "training": {
            "global_batch": 48,
            "sequence_length": 1024,
            "tokens": "100B",
            "stack": "none",
            "schedule": ["1f1b"],
            "micro_batch": [1],
        },
        "search": {"target": "none", "recompute": ["none"], "zero": [0]},
        "strategies": {"tp": [1, 2], "cp": [1], "sp": [1]},
        **changes,
    }


def whole() -> Mixtures:
    known = registry()
    return Mixtures(self_contained(read_record(problem(), Problem)[0], None, known), known)


@pytest.fixture(scope="module")
def solved() -> dict[tuple[int, int], tuple[float, float]]:
    """Seconds and cost of a step of the fastest plan of every mixture, each solved."""
    result = {}
    for counts in product(*(range(count + 1) for count in NODES)):
        asked = problem()
        pools = asked["cluster"]["pools"]
        for pool, count in zip(pools, counts, strict=True):
            pool["levels"] = [pool["levels"][0], {**pool["levels"][1], "fanout": count}]
            if count == 1:
                pool["levels"].pop()
        kept = [pool for pool, count in zip(pools, counts, strict=True) if count]
        if not kept:
            continue
        cluster = {"pools": kept, **({"between": asked["cluster"]["between"]} if len(kept) > 1 else {})}
        plan = nest.solve({**asked, "cluster": cluster})
        hourly = sum(2 * count * price for count, price in zip(counts, PRICES, strict=True))
        seconds = plan.batch_time or float("inf")
        result[counts] = seconds, hourly * seconds / 3600 + plan.summary["cost"].get("egress", 0.0)
    return result


@pytest.mark.longer
@pytest.mark.parametrize("place", [0.3, 0.8])
def test_answers_are_those_of_solving_every_mixture(
    solved: dict[tuple[int, int], tuple[float, float]], place: float
) -> None:
    ordered = sorted((seconds for seconds, _ in solved.values()), reverse=True)
    limit = ordered[int(place * len(ordered))] * (1 + 1e-9)
    budget = sorted(cost for _, cost in solved.values())[len(solved) // 2] * STEPS * (1 + 1e-9)
    made = nest.recommend(problem(), within=limit * STEPS, budget=budget, clusters=["the problem's"])
    (found,) = made.clusters
    fitting = {counts: each for counts, each in solved.items() if each[0] <= limit}
    assert found["fewest"]["nodes"] == min(map(sum, fitting))
    assert found["cheapest"]["cost"] == pytest.approx(min(cost for _, cost in fitting.values()) * STEPS, rel=1e-6)
    paid = min(seconds for seconds, cost in solved.values() if cost * STEPS <= budget)
    assert found["fastest"]["batch_time"] == pytest.approx(paid, rel=1e-9)
    assert found["fastest"]["cost"] <= budget
    for name in ("fewest", "cheapest", "fastest"):
        counts = tuple(found[name]["pools"].values())
        assert found[name]["batch_time"] == pytest.approx(solved[counts][0], rel=1e-9)
        assert nest.check(found[name]["plan"]).ok
    used = ", ".join(f"{count} {pool}" for pool, count in found["fewest"]["pools"].items() if count)
    assert f"{found['fewest']['nodes']} of 5 ({used})" in recommendation_text(made.to_dict())


def test_no_plan_beats_the_floor_of_its_mixture(solved: dict[tuple[int, int], tuple[float, float]]) -> None:
    mixtures = whole()
    assert set(mixtures.counts()) == set(solved)
    for counts, (seconds, _) in solved.items():
        assert 0.2 * seconds < mixtures.least(counts) <= seconds
