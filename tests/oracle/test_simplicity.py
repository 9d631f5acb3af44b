"""The key of plans written by hand, and the search for the simplest plan against every plan of tiny problems."""

from collections import Counter
from itertools import islice
from random import Random

import pytest

from tests.agreement.problems import random_problem
from tests.agreement.random_pools import random_pool_problem
from tests.agreement.random_schedules import random_schedule_problem
from tests.oracle import pools
from tests.oracle.check import same
from tests.oracle.price import price
from tests.oracle.simplicity import key, simplest, simplest_of, spelled_out
from tests.oracle.test_brute_force import TINY, all_or_none, pared
from tests.oracle.test_pools import FEW
from tests.oracle.test_pools import every_plan as every_plan_on_pools
from tests.pooled_problems import candidate as pooled_candidate

TELLING = {
    "plain": (22, 41, 89, 100, 115),
    "mixed": (40, 68, 76, 91, 111, 118),
    "chunked": (14, 50, 51, 53, 58, 65),
    "schedules": (18, 22, 33, 54, 94),
}
"""Problems of each kind in which a simpler plan is slower, little enough to be taken."""

LAYERS = ("embedding", "a", "b", "c", "d", "head")


def candidate(name: str, width: int, **degrees: int) -> dict:
    made = pooled_candidate(name, "", width, [1.0] * len(LAYERS), degrees=degrees)
    mode = made["recompute"]["none"]
    return {**made, "recompute": dict.fromkeys(("none", "selective", "full"), mode)}


def problem(*, layers=LAYERS, **search) -> dict:
    """Four devices; six layers in a chain."""
    return {
        "training": {"global_batch": 8, "schedule": ["1f1b", "interleaved", "gpipe"]},
        "cluster": {"memory": 1e9, "levels": [{"fanout": 4, "bandwidth": 100.0, "latency": 0.0}]},
        "search": search,
        "profile": {
            "layers": list(layers),
            "edges": [[i, i + 1] for i in range(len(layers) - 1)],
            "candidates": [
                candidate("c1", 1),
                candidate("t2", 2, tp=2, sp=2, cp=1),
                candidate("e2", 2, tp=1, ep=2),
                candidate("both", 4, tp=2, cp=2),
            ],
        },
    }


def plan(*stages, replicas=1, rank_order="pp-inner", schedule="1f1b", chunks=1, zero_degree=None) -> dict:
    """Of stages as layers, candidate, recompute mode and ZeRO stage; places play no part."""
    return {
        "replicas": replicas,
        "rank_order": rank_order,
        "schedule": schedule,
        "chunks": chunks,
        "zero_degree": zero_degree,
        "stages": [
            {"layers": layers, "candidate": name, "offset": 0, "recompute": recompute, "zero": zero, "chunks": None}
            for layers, name, recompute, zero in stages
        ],
    }


FRONT, BEHIND, ALL = [0, 1, 2], [3, 4, 5], [0, 1, 2, 3, 4, 5]


def test_a_single_stage_on_all_devices_has_the_least_key():
    whole = plan((ALL, "c1", "none", 0), replicas=4)
    assert key(problem(), whole) == (0, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0)


def test_a_pipeline_and_what_it_decides_stand_in_the_key_in_this_order():
    halves = plan(
        (FRONT, "t2", "selective", 1), (BEHIND, "t2", "full", 0), schedule="gpipe", rank_order="dp-inner", zero_degree=2
    )
    assert key(problem(), halves) == (0, 1, 1, 1, 1, 2, 0, 1, 3, 1, 1, 0, 0, 0)


@pytest.mark.longer
def test_a_share_admits_a_simpler_plan_and_no_share_the_fastest():
    """Two stages are faster than one of all layers; by how much decides."""
    asked = problem(zero=[0], rank_order=["pp-inner"])
    asked["constraints"] = ["dp == 1", "pp <= 2"]
    asked["training"]["schedule"] = "1f1b"
    asked["profile"]["candidates"][1:] = []
    asked["profile"]["candidates"][0]["recompute"].pop("selective")
    asked["profile"]["candidates"][0]["recompute"].pop("full")
    fastest, one = spelled_out(asked, 0.0, TINY), spelled_out(asked, 1.0, TINY)
    assert len(fastest.plan["stages"]) == 2
    assert len(one.plan["stages"]) == 1
    apart = one.batch_time / fastest.batch_time - 1
    assert spelled_out(asked, 1.01 * apart, TINY) == one
    assert spelled_out(asked, 0.99 * apart, TINY) == fastest
    for within, expected in ((1.01 * apart, one), (0.99 * apart, fastest)):
        assert simplest(asked, within, fastest.least).key == expected.key


def tiny(random: Random, kind: str) -> dict:
    made = random_schedule_problem(random) if kind == "schedules" else random_problem(random, kind)
    if random.random() < 0.5:
        made["training"]["price"] = "replay"
    return pared(random, made) if kind == "mixed" or random.random() < 0.5 else made


def compare(problem: dict, plans: list[tuple[dict, dict]]) -> Counter[str]:
    """Of all plans of a problem, each with its numbers, those that shares of the least step time admit."""
    seen: Counter[str] = Counter()
    for within in (0.02, 0.3, 2.0) if any(numbers["fits"] for _, numbers in plans) else ():
        expected = simplest_of(problem, plans, within)
        found = simplest(problem, within, expected.least)
        assert found is not None
        assert found.key == expected.key
        assert same(found.batch_time, expected.batch_time)
        seen["slower" if expected.batch_time > expected.least * (1 + 1e-9) else "fastest"] += 1
    return seen


@pytest.mark.longer
@pytest.mark.parametrize(("kind", "seeds"), TELLING.items())
def test_no_plan_that_is_spelled_out_is_simpler(kind, seeds):
    seen: Counter[str] = Counter()
    for seed in (*range(6), *seeds):
        seen += spelled_out_agrees(seed, kind)
    assert seen["slower"] > 6
    assert seen["fastest"] > 2


def spelled_out_agrees(seed: int, kind: str) -> Counter[str]:
    asked = tiny(Random(seed), kind)
    plans = all_or_none(asked, 600)
    return compare(asked, [(each, price(asked, each)) for each in plans or ()])


@pytest.mark.longer
def test_no_plan_that_is_spelled_out_on_pools_is_simpler():
    seen: Counter[str] = Counter()
    for seed in range(40):
        random = Random(seed)
        asked = random_pool_problem(random)
        asked.setdefault("search", {})["zero"] = random.choice([[0], [1], [0, 1]])
        asked["constraints"] = ["replicas == 1"]
        plans = list(islice(every_plan_on_pools(asked), FEW + 1))
        if len(plans) <= FEW:
            kept = [each for each in plans if not pools.violations(asked, each)]
            seen += compare(asked, [(each, pools.price(asked, each)) for each in kept])
    assert seen["slower"] > 3
    assert seen["fastest"] > 10
