"""From a plan to flags and back: the same decisions, the same bytes, the same batch time."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nest
from nest.deployment import deployment
from nest.exporters.megatron.exporter import exporter
from nest.exporters.megatron.limits import transformer_of
from nest.exporters.megatron.model import feed_forwards
from nest.exporters.megatron.parallel import PIPELINE_INNER_ORDER, rank_order
from nest.files import structure
from nest.spec import PlanDocument, Problem
from nest.starting import start
from tests.conformance.plans import PROBLEMS
from tests.exporters.megatron_plans import problems


def back(plan: PlanDocument, text: str, name: str, folder: Path) -> PlanDocument:
    """The plan that exported flags describe on the same cluster."""
    flags, cluster = folder / name, folder / "cluster.json"
    flags.write_text(text)
    cluster.write_text(json.dumps({"cluster": plan.problem["cluster"]}))
    found = start(flags, "megatron", cluster=str(cluster))
    assert found.notes == ()
    shape = deployment(plan)
    decisions: dict[str, Any] = {"dp": shape.data_parallel}
    if rank_order(shape, transformer_of(structure(plan.problem, Problem))) != PIPELINE_INNER_ORDER:
        decisions["rank_order"] = shape.rank_order  # Which flags leave to the files that place ranks.
    return nest.evaluate(found.problem, fix=decisions)


@settings(max_examples=15)
@given(problems(), st.sampled_from(["megatron_flags.sh", "megatron_args.yaml"]))
def test_flags_say_the_plan(tmp_path_factory: pytest.TempPathFactory, problem: dict[str, Any], name: str) -> None:
    plan = nest.evaluate(problem)
    files = exporter.export(plan)
    again = back(plan, files[name], name, tmp_path_factory.mktemp("flags"))
    assert deployment(again) == deployment(plan)
    assert again.batch_time == plan.batch_time
    assert [stage.memory for stage in again.stages] == [stage.memory for stage in plan.stages]
    assert exporter.export(again) == files


@pytest.mark.parametrize("kind", PROBLEMS)
def test_plans_of_every_kind_come_back(kind: str, tmp_path: Path) -> None:
    plan = nest.evaluate(PROBLEMS[kind])
    files = exporter.export(plan)
    for name, text in files.items():
        again = back(plan, text, name, tmp_path)
        assert again.batch_time == plan.batch_time
        assert exporter.export(again) == files


def test_some_models_drawn_have_experts() -> None:
    shapes = [feed_forwards(transformer_of(structure(PROBLEMS[kind], Problem))) for kind in PROBLEMS]
    assert any(sparse for _, sparse in shapes)
    assert any(not sparse for _, sparse in shapes)
