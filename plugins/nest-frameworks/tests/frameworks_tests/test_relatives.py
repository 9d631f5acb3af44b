"""Frameworks that run Megatron Core in their own words: there and back, and what people write for them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nest
from frameworks_tests.megatron_plans import problems
from frameworks_tests.plans import assert_same_run
from frameworks_tests.random_plans import plans
from frameworks_tests.relatives_files import FILES, File
from nest.deployment import LaunchOptions
from nest.errors import InputError
from nest.formulate.from_flags import start
from nest.hooks.pipelines import deployed
from nest.hooks.protocols import Exporter
from nest.spec import PlanDocument
from nest_frameworks import nest_exporters, nest_plan_readers
from tests.conformance.plans import PROBLEMS

FRAMEWORKS = ("megatron-bridge", "nemo", "verl", "ms-swift")
READERS = {each.name: each for each in nest_plan_readers()}
EXPORTERS: dict[str, Exporter] = {each.name: each for each in nest_exporters() if each.name in FRAMEWORKS}


def back(name: str, plan: PlanDocument, folder: Path) -> PlanDocument | None:
    """The plan that the exported file runs on the same cluster; None: the exporter refuses it."""
    try:
        ((file, text),) = EXPORTERS[name].export(plan).items()
    except InputError:
        return None
    said: dict[str, Any] = {"nest": 1, "cluster": plan.problem["cluster"]}
    if name != "nemo":  # Whose files say the model.
        said["model"] = plan.problem["model"]
        said["training"] = {"stack": plan.problem["training"]["stack"]}
    if name == "megatron-bridge":  # Whose recipes say what else there is to a training.
        said["training"] = plan.problem["training"]
    written, problem = folder / file, folder / "problem.json"
    written.write_text(text)
    problem.write_text(json.dumps(said))
    # Which overlays leave to a launch.
    options = LaunchOptions(1, deployed(plan).world_size) if name == "megatron-bridge" else None
    found = start(written, name, problem, options=options)
    assert not any("not read" in note or "not know" in note or "priced as 1" in note for note in found.notes)
    decided: dict[str, Any] = {}
    if deployed(plan).rank_order == "pp-inner":
        decided["rank_order"] = "pp-inner"  # Which files may leave to those that place ranks.
    return nest.evaluate(found.problem, fix=decided)


@pytest.mark.longer
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_some_plans_of_every_kind_come_back(name: str, tmp_path: Path) -> None:
    came = 0
    for problem in PROBLEMS.values():
        training = {**problem["training"], "overlap": {"data": True, "tensor": name != "verl"}}
        plan = nest.evaluate({**problem, "training": training})
        again = back(name, plan, tmp_path)
        if again is not None:
            assert_same_run(plan, again)
            came += 1
    assert came >= 2


@pytest.mark.longer
def test_adapters_come_back(tmp_path: Path) -> None:
    lora = {"rank": 8, "targets": ["q_proj", "k_proj", "v_proj"]}
    plan = nest.evaluate(
        {**PROBLEMS["dense"], "training": {**PROBLEMS["dense"]["training"], "trainable": {"lora": lora}}}
    )
    again = back("megatron-bridge", plan, tmp_path)
    assert again is not None
    assert again.problem["training"]["trainable"] == plan.problem["training"]["trainable"]
    assert_same_run(plan, again)
    for name in ("nemo", "verl", "ms-swift"):
        assert back(name, plan, tmp_path) is None


@pytest.mark.longer
@settings(max_examples=12, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(plans(), st.sampled_from(FRAMEWORKS))
def test_plans_come_back(tmp_path_factory: pytest.TempPathFactory, plan: PlanDocument, name: str) -> None:
    again = back(name, plan, tmp_path_factory.mktemp("relatives"))
    if again is not None:
        assert_same_run(plan, again)


@pytest.mark.longer
@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(problems(), st.sampled_from(FRAMEWORKS))
def test_trainings_come_back(tmp_path_factory: pytest.TempPathFactory, problem: dict[str, Any], name: str) -> None:
    plan = nest.evaluate(problem)
    again = back(name, plan, tmp_path_factory.mktemp("relatives"))
    if again is not None:
        assert_same_run(plan, again)


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.reader} {file.source.rpartition('/')[2]}")
def test_public_files_are_read_or_refused(file: File) -> None:
    reader = READERS[file.reader]
    if file.refused:
        with pytest.raises(InputError, match=re.escape(file.refused)):
            reader.read(file.text)
        return
    found = reader.read(file.text)
    assert found.devices == file.devices
    assert {key: found.settings["fixed"].get(key) for key in file.fixed} == file.fixed
    assert {key: found.settings["training"].get(key) for key in file.training} == file.training
    assert file.model is None or found.settings["model"] == file.model
    assert file.told in " ".join(found.notes)
    assert not any("not read" in note or "not know" in note for note in found.notes)


@pytest.mark.longer
@pytest.mark.parametrize("name", ["verl", "ms-swift"])
def test_files_name_models_of_the_catalogue(name: str, tmp_path: Path) -> None:
    fixed = {"tp": 2, "sp": True, "dp": 8, "zero": 1, "recompute": "full"}
    plan = nest.evaluate({**PROBLEMS["dense"], "model": "qwen3-8b", "fixed": fixed} | {"training": PLAIN})
    ((file, text),) = EXPORTERS[name].export(plan).items()
    assert "Qwen/Qwen3-8B" in text
    written, problem = tmp_path / file, tmp_path / "cluster.json"
    written.write_text(text)
    problem.write_text(json.dumps({"nest": 1, "cluster": plan.problem["cluster"]}))
    assert_same_run(plan, nest.evaluate(start(written, name, problem).problem))


PLAIN = {**PROBLEMS["dense"]["training"], "overlap": {"data": True, "tensor": False}}


SWIFT = "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-30B-A3B --micro_batch_size 1 --max_length 4096 "


@pytest.mark.parametrize(
    "tuned", ["", "--train_type lora --lora_rank 8", "--tuner_type lora --target_modules all-linear"]
)
def test_adapters_of_swift_are_priced_and_not_said_to_be_left_out(tuned: str) -> None:
    found = READERS["ms-swift"].read_launch(f"{SWIFT}{tuned}", LaunchOptions())
    assert ("trainable" in found.settings["training"]) == bool(tuned)
    assert not any("to be trained" in note for note in found.notes)


@pytest.mark.parametrize(("said", "told"), [("--expert_tensor_parallel_size 3", False), ("", True)])
def test_what_is_given_is_not_said_to_be_left_out(said: str, told: bool) -> None:
    text = f"torchrun --nproc-per-node 8 pretrain_gpt.py --micro-batch-size 1 {said.replace('_', '-')} "
    parallel = "--tensor-model-parallel-size 1 --expert-model-parallel-size 16"
    with pytest.raises(InputError) as error:
        READERS["megatron"].read_launch(f"{text}{parallel}", LaunchOptions())
    assert ("left out: the tensor-parallel size" in str(error.value)) == told


def test_bridge_reads_graphs() -> None:
    text = "model: {tensor_model_parallel_size: 2, cuda_graph_impl: transformer_engine, cuda_graph_scope: [attn]}\n"
    assert READERS["megatron-bridge"].read_launch(text, LaunchOptions()).settings["training"]["graphs"] == "layers"
