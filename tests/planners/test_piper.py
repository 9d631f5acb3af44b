"""Piper's objective: the slowest stage alone, exact on its own model."""

import json
from pathlib import Path

import pytest

from benchmarks.paper.authors import PIPER, pipers
from tests.planners.instances import LAYERS, candidate, planned, problem


def test_filling_the_pipeline_does_not_count():
    """As many stages as there are layers, for the least slowest stage, though few micro-batches never fill them."""
    written = problem(1e12, candidate(1, sent=1.0))
    written["training"]["global_batch"] = 2
    written["profile"]["candidates"][0]["state"] = {}
    instance, proposal, seen = planned("piper", written)
    assert seen.fits
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
    assert seen.fits, proposal.remarks


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
    assert seen.fits
    widths = [instance.candidates[stage.candidate].width for stage in proposal.solution.stages]
    assert sum(widths) <= stages
    assert widths[0] == 2, json.dumps(widths)
