"""Stages that recompute some of their layers: worked by hand, and against every plan spelled out."""

from random import Random

import pytest

from tests.agreement.ports import occupy
from tests.agreement.problems import random_problem
from tests.agreement.random_parts import recompute_parts
from tests.agreement.random_pools import random_pool_problem
from tests.oracle import pools
from tests.oracle.brute_force import Answer, solve
from tests.oracle.check import plan_of, same
from tests.oracle.document import document_of
from tests.oracle.price import price
from tests.oracle.test_brute_force import all_or_none, pared
from tests.oracle.test_pools import spelled_out

NONE = {"extra": [0.0] * 4, "first": [8.0] * 4, "more": [8.0] * 4, "peak": [0.0] * 4, "stash_inputs": False}
FULL = {"extra": [1.0] * 4, "first": [2.0] * 4, "more": [0.0] * 4, "peak": [5.0] * 4, "stash_inputs": True}


def chain(**search) -> dict:
    """Four layers on two devices."""
    candidate = {
        "name": "one",
        "degrees": {"tp": 1},
        "width": 1,
        "samples": 1,
        "forward": [1.0] * 4,
        "backward": [2.0] * 4,
        "state": {},
        "recompute": {"none": NONE, "full": FULL},
        "edge_bytes": [3.0] * 3,
    }
    return {
        "nest": 1,
        "training": {"global_batch": 4, "schedule": "1f1b"},
        "cluster": {"memory": 1e9, "levels": [{"fanout": 2, "bandwidth": 3.0, "latency": 0.0}]},
        "search": {"zero": [0], "recompute_layers": True, **search},
        "constraints": ["pp == 2"],
        "profile": {"layers": list("abcd"), "edges": [[0, 1], [1, 2], [2, 3]], "candidates": [candidate]},
    }


def plan(*recompute) -> dict:
    """Two stages of two layers."""
    rows = zip([[0, 1], [2, 3]], (0, 1), recompute, strict=True)
    shared = {"candidate": "one", "zero": 0, "chunks": None}
    stages = [{"layers": layers, "offset": offset, "recompute": mode, **shared} for layers, offset, mode in rows]
    return {"replicas": 1, "rank_order": "pp-inner", "schedule": "1f1b", "chunks": 1, "zero_degree": None} | {
        "stages": stages
    }


def test_a_part_runs_its_first_layers_again_and_keeps_the_others():
    numbers = price(chain(), plan(("full", 1, "none"), ("full", 1, "none")))
    first, last = numbers["stages"]
    # Two layers of 3 s, one of them again for 1 s, and one message of 1 s.
    assert first["time"] == last["time"] == 8
    # One micro-batch keeps 2 + 8 bytes beside 5 at the peak; each further one 8, and what enters the stage: nothing.
    assert first["memory"] == 2 + 8 + 5 + 8
    assert last["memory"] == 2 + 8 + 5


def test_a_document_says_what_is_recomputed_and_is_read_back():
    decided = plan(("full", 1, "none"), "full")
    document = document_of(chain(), decided)
    told = [[stage.get(f"recompute{end}") for end in ("", "_layers", "_rest")] for stage in document["stages"]]
    assert told == [["full", 1, "none"], ["full", None, None]]
    assert plan_of(document) == decided


TELLING = {"plain": (17, 89, 253, 278), "mixed": (43, 56, 302, 490), "chunked": (27, 81, 87, 485)}
"""Seeds of small problems whose best plan recomputes some layers of a stage."""


def recomputes_parts(answer: Answer) -> bool:
    return answer.plan is not None and any(type(each["recompute"]) is tuple for each in answer.plan["stages"])


@pytest.mark.longer
@pytest.mark.parametrize(("kind", "seed"), [(kind, seed) for kind, seeds in TELLING.items() for seed in seeds])
def test_the_oracle_misses_no_plan_with_parts(kind, seed):
    random = Random(seed)
    problem = pared(random, random_problem(random, kind))
    if seed % 3 == 0:
        occupy(random, problem)
    recompute_parts(random, problem)
    if seed % 2:
        problem["training"]["price"] = "replay"
    answer, numbers = solve(problem), [price(problem, each) for each in all_or_none(problem)]
    assert recomputes_parts(answer)
    assert same(answer.batch_time, min(each["batch_time"] for each in numbers if each["fits"]), 1e-12)


@pytest.mark.longer
@pytest.mark.parametrize("seed", [24, 28, 30, 45])
def test_the_oracle_misses_no_plan_with_parts_on_pools(seed):
    random = Random(seed)
    problem = random_pool_problem(random)
    problem.setdefault("search", {})["zero"] = [0]
    problem["constraints"] = ["replicas == 1"]
    for candidate in problem["profile"]["candidates"]:
        candidate["recompute"] = dict(list(candidate["recompute"].items())[:1])
    recompute_parts(random, problem)
    answer, plans = pools.solve(problem), spelled_out(problem)
    assert recomputes_parts(answer)
    assert same(answer.batch_time, min(each["batch_time"] for each in plans if each["fits"]), 1e-12)
