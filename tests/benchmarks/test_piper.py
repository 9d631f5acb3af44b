"""The translation of Piper's problems: exact on chains, never slower than Piper elsewhere."""

import json
from copy import deepcopy
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

import nest
from benchmarks.scale import piper
from benchmarks.scale.mixed import MEMORY, PUBLISHED
from tests.benchmarks.small_piper import chains

ROOM = 1e15


def splits(count: int) -> list[list[list[int]]]:
    """Every way to cut a chain of nodes."""
    return [
        [list(range(start, end)) for start, end in zip((0, *cuts), (*cuts, count), strict=True)]
        for number in range(count)
        for cuts in combinations(range(1, count), number)
    ]


def of_one_candidate(problem: dict[str, Any], name: str) -> dict[str, Any]:
    only = deepcopy(problem)
    only["profile"]["candidates"] = [each for each in problem["profile"]["candidates"] if each["name"] == name]
    return {**only, "search": {**only["search"], "mixed": False}}


@pytest.mark.longer
@given(chains())
def test_on_chains_our_optimum_is_the_best_of_pipers_prices(data: dict[str, Any]) -> None:
    graph, devices = piper.read(data), 4
    problem = piper.relaxed(graph, devices, ROOM)
    for width, replicas in piper.shapes(graph, devices):
        plan = nest.solve(of_one_candidate(problem, f"{width}x{replicas}"))
        prices = [
            piper.price(graph, [(nodes, width, replicas) for nodes in split], devices, ROOM)
            for split in splits(len(graph.nodes))
        ]
        assert plan.status == "optimal"
        best = min(each for each in prices if each is not None)
        assert max(stage.time for stage in plan.stages) == pytest.approx(best, rel=1e-8)


def test_blocks_of_any_order_fit_the_cluster() -> None:
    graph = piper.PiperGraph(nodes=({1: (), 2: ()},), edges=(), samples=12)
    assert piper.shapes(graph, 6) == [(1, 1), (1, 2), (1, 3), (1, 4), (1, 6), (2, 1), (2, 2), (2, 3)]


def test_a_plan_beyond_the_devices_the_samples_or_the_memory_has_no_price() -> None:
    choice = piper.Choice(time=1.0, weights=0.0, held=10.0, fixed=5.0, sync_in={}, sync_out={})
    graph = piper.PiperGraph(nodes=({1: (choice,)}, {1: (choice,)}), edges=((0, 1, 0.0),), samples=4)
    apart = [([0], 1, 1), ([1], 1, 1)]
    assert piper.price(graph, apart, 2, 25.0) == 1.0
    assert piper.price(graph, apart, 2, 24.0) is None
    assert piper.price(graph, apart, 1, 25.0) is None
    assert piper.price(graph, [([0, 1], 1, 5)], 8, ROOM) is None


def test_edges_that_a_stage_may_skip_are_known() -> None:
    edges = ((0, 1, 1.0), (1, 2, 1.0), (0, 2, 1.0), (2, 3, 1.0))
    graph = piper.PiperGraph(nodes=({}, {}, {}, {}), edges=edges, samples=1)
    assert piper.unskippable(graph) == {0, 1, 3}


def test_the_published_optima_without_stages_are_the_formula(shared: Path) -> None:
    """On 8 and 64 devices of 80 GiB the published optimum is one stage, replicated: nine decimals must agree."""
    graph = piper.read(json.loads((shared / "piper" / "bert32a100.json").read_text()))
    everything = range(len(graph.nodes))
    for devices in (8, 64):
        price = piper.price(graph, [(everything, 1, devices)], devices, MEMORY)
        assert price == pytest.approx(PUBLISHED[devices], abs=5e-10)
