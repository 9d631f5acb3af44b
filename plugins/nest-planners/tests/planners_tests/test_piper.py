"""Piper's objective: the slowest stage alone, exact on its own model."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from attrs import evolve

from benchmarks.paper.authors import PIPER, loads, pipers
from benchmarks.scale.suite import PUBLISHED_LOADS
from nest.plan.evaluate import evaluate
from planners_tests.instances import LAYERS, candidate, planned, problem
from tests.seeds import few


def test_filling_the_pipeline_does_not_count():
    """As many stages as there are layers, for the least slowest stage, though few micro-batches never fill them."""
    written = problem(1e12, candidate(1, sent=1.0))
    written["training"]["global_batch"] = 2
    written["profile"]["candidates"][0]["state"] = {}
    instance, proposal, seen = planned("piper", written)
    assert seen.admitted
    assert len(proposal.solution.stages) == LAYERS
    assert proposal.solution.replicas == 2
    assert instance.space.zero == (0,)


def test_replicas_divide_the_batch():
    written = problem(1e12, candidate(1, sent=1.0))
    written["training"] |= {"global_batch": 12, "uneven_batch": True}
    _, proposal, _ = planned("piper", written)
    assert 12 % proposal.solution.replicas == 0


def test_memory_of_micro_batches_in_flight_counts():
    _, proposal, seen = planned("piper", problem(1.5e9, candidate(1)))
    assert seen.admitted, proposal.remarks


@pytest.mark.longer
@pytest.mark.parametrize("devices", [8, pytest.param(64, marks=pytest.mark.slow)])
def test_its_authors_figures_come_out(shared: Path, devices: int) -> None:
    rows = list(pipers(shared / "piper", [devices]))
    assert len(rows) == sum(count == devices for count, _ in PIPER)
    assert all(row.near for row in rows), rows


@pytest.mark.parametrize("stages", [2, 3])
def test_stages_have_widths_of_their_own_where_plans_may_be_mixed(stages):
    wide = [candidate(width, tp=1, batch=width) for width in (1, 2)]
    for each in wide:
        each["samples"] = 2
        each["forward"][0] = 30e-3 / each["width"]
    written = problem(1e12, *wide, constraints=[f"devices <= {stages}", "replicas == 1"])
    written["search"]["mixed"] = True
    instance, proposal, seen = planned("piper", written)
    assert seen.admitted
    widths = [instance.candidates[stage.candidate].width for stage in proposal.solution.stages]
    assert sum(widths) <= stages
    assert widths[0] == 2, json.dumps(widths)


def branched(seed: int) -> dict[str, Any]:
    """Eight layers whose graph branches, on four devices of one machine, without replicas."""
    draw = Random(seed)
    edges = [[draw.randrange(layer), layer] for layer in range(1, LAYERS)]
    edges += [[layer, LAYERS - 1] for layer in range(LAYERS - 1) if draw.random() < 0.3]
    edges = sorted({tuple(edge) for edge in edges})
    alone = candidate(1)
    alone["forward"] = [draw.uniform(1e-3, 5e-3) for _ in range(LAYERS)]
    alone["edge_bytes"] = [draw.uniform(0, 3e8) for _ in edges]
    alone["recompute"].pop("full")
    written = problem(1e12, alone, constraints=["replicas == 1"])
    written["cluster"]["levels"] = [{"name": "node", "fanout": 4, "bandwidth": 1e11, "latency": 0.0}]
    written["search"] |= {"tensors": "direct", "rank_order": ["pp-inner"]}
    written["profile"]["edges"] = [list(edge) for edge in edges]
    return written


def partitions(layers: frozenset[int], before: dict[int, set[int]], most: int) -> Iterator[list[list[int]]]:
    """All ways to divide layers into at most so many stages, each of which reads itself and those in front alone."""
    if not layers:
        yield []
        return
    for bits in range(1, 1 << len(layers)) if most else ():
        stage = {layer for place, layer in enumerate(sorted(layers)) if bits >> place & 1}
        if all(before[layer] & layers <= stage for layer in stage):
            for others in partitions(layers - stage, before, most - 1):
                yield [sorted(stage), *others]


@pytest.mark.parametrize("seed", few(range(6), 0, 5))
def test_stages_are_differences_of_any_downsets(seed):
    written = branched(seed)
    instance, proposal, seen = planned("piper", written)
    assert seen.admitted
    before = {layer: {a for a, b in written["profile"]["edges"] if b == layer} for layer in range(LAYERS)}
    first = proposal.solution.stages[0]
    least = min(
        evaluate(
            instance,
            evolve(
                proposal.solution,
                stages=tuple(evolve(first, layers=tuple(each), offset=at) for at, each in enumerate(stages)),
            ),
        ).slowest
        for stages in partitions(frozenset(range(LAYERS)), before, 4)
    )
    assert evaluate(instance, proposal.solution).slowest == pytest.approx(least, rel=1e-6)


@pytest.mark.longer
def test_published_loads_of_branched_graphs_come_out(shared: Path) -> None:
    rows = list(loads(shared / "dag"))
    assert len(rows) == len(PUBLISHED_LOADS)
    assert all(row.near for row in rows), rows
