"""Branch and check on networks: bounds that are kept, graphs with many cuts, and networks as large as people have."""

from itertools import pairwise
from typing import Any

import pytest

import nest
from nest.formulate.instance import formulate
from nest.hooks.registry import registry
from nest.io import structure
from nest.plan.evaluate import evaluate
from nest.solve.effort import Deadline
from nest.solve.placement.search import prove
from nest.spec import Problem
from tests import measured


def profile(edges: list[tuple[int, int]], layers: int, sent: float = 1e8) -> dict[str, Any]:
    """Layers of some 10 ms, no two alike, with a gigabyte of state each."""
    seconds = [0.01 * (1 + 0.3 * (index * 7 % 5) / 5) for index in range(layers)]
    state, saved = [1e9] * layers, [1e8] * layers
    return measured.profile(
        seconds,
        seconds,
        edges=edges,
        state=dict.fromkeys(("weights", "gradients", "optimizer"), state),
        kept={"first": saved, "more": saved},
        sent=sent,
    )


def chain(layers: int) -> list[tuple[int, int]]:
    return [(index, index + 1) for index in range(layers - 1)]


def towers(count: int, height: int) -> list[tuple[int, int]]:
    """Chains side by side between a first and a last layer."""
    last = count * height + 1
    edges = []
    for tower in range(count):
        rows = [1 + tower * height + step for step in range(height)]
        edges += [(0, rows[0]), *pairwise(rows), (rows[-1], last)]
    return edges


RING = {"torus": {"shape": [4], "bandwidth": "10 GB/s", "latency": "2 us"}}


@pytest.mark.longer
def test_a_graph_with_many_cuts_is_placed_with_a_bound() -> None:
    problem = {
        "nest": 1,
        "profile": profile(towers(5, 8), 42),
        "training": {"global_batch": 8},
        "constraints": ["pp == 4"],
        "cluster": {"memory": "80 GB", "topology": RING},
    }
    plan = nest.solve(problem, time_limit=60)
    assert plan.placement is not None
    assert plan.batch_time is not None
    assert plan.lower_bound is not None
    assert plan.lower_bound <= plan.batch_time <= plan.lower_bound * 1.05
    assert nest.check(plan).ok


@pytest.mark.longer
@pytest.mark.parametrize(
    "topology",
    [
        {"torus": {"shape": [4, 4, 4], "bandwidth": "50 GB/s", "latency": "1 us"}},
        {"mesh": {"shape": [8, 8], "bandwidth": "50 GB/s", "latency": "1 us"}},
        {"dragonfly": {"p": 2, "a": 4, "h": 2, "bandwidth": "50 GB/s", "latency": "1 us"}},
        {
            "rail-optimised": {
                "nodes": 8,
                "gpus": 8,
                "nvlink_bandwidth": "450 GB/s",
                "bandwidth": "50 GB/s",
                "nvlink_latency": "3 us",
                "latency": "2 us",
            }
        },
    ],
    ids=["torus", "mesh", "dragonfly", "rails"],
)
def test_large_networks_have_a_small_gap(topology: dict[str, Any]) -> None:
    problem = {
        "nest": 1,
        "profile": profile(chain(16), 16, sent=1e9),
        "training": {"global_batch": 128},
        "cluster": {"memory": "30 GB", "topology": topology},
    }
    plan = nest.solve(problem)
    assert plan.batch_time is not None
    assert plan.lower_bound is not None
    assert plan.lower_bound <= plan.batch_time <= plan.lower_bound * 1.05
    assert nest.check(plan).ok


def test_time_that_is_up_leaves_a_plan_with_its_bound() -> None:
    problem = {
        "nest": 1,
        "profile": profile(chain(16), 16, sent=1e9),
        "training": {"global_batch": 128},
        "cluster": {"memory": "30 GB", "topology": {"mesh": {"shape": [6, 6], "bandwidth": "50 GB/s"}}},
    }
    plan = nest.solve(problem, time_limit=Deadline(0.5, patience=600.0))
    assert plan.batch_time is not None
    assert plan.lower_bound is not None
    assert plan.lower_bound <= plan.batch_time
    assert nest.check(plan).ok


def test_a_claim_that_there_is_no_plan_is_refuted() -> None:
    problem = {
        "nest": 1,
        "profile": profile(chain(4), 4),
        "training": {"global_batch": 8},
        "cluster": {"memory": "80 GB", "topology": RING},
    }
    instance = formulate(structure(problem, Problem), registry())[0]
    proof = prove(instance, None)
    assert proof.status == "refuted"
    assert proof.better is not None
    assert proof.better_batch_time == pytest.approx(evaluate(instance, proof.better).batch_time)
