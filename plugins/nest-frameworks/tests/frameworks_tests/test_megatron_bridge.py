import json
from pathlib import Path
from typing import Any

import pytest

import nest
from nest.deployment import LaunchOptions
from nest.errors import InputError
from nest.formulate.from_flags import start
from nest.io import read_mapping_text
from nest_frameworks.megatron.bridge import FUSED_ADAPTERS, export, read
from tests.conformance.plans import DENSE_MODEL, PROBLEMS, plan, problem


def overlay(kind: str) -> dict[str, Any]:
    return read_mapping_text(export(plan(kind))["megatron_bridge.yaml"], "overlay.yaml")


@pytest.mark.longer
def test_degrees_and_batches_are_the_plan_s() -> None:
    found = overlay("moe")
    assert found["model"]["tensor_model_parallel_size"] == 2
    assert found["model"]["expert_model_parallel_size"] == 4
    assert found["model"]["expert_tensor_parallel_size"] == 1
    assert found["model"]["recompute_granularity"] == "full"
    assert found["train"] == {"micro_batch_size": 1, "global_batch_size": 32}
    assert found["ddp"]["overlap_param_gather"] is True
    assert found["comm_overlap"]["overlap_grad_reduce"] is True


@pytest.mark.longer
def test_stages_are_a_layout_or_chunks() -> None:
    assert overlay("uneven")["model"]["pipeline_model_parallel_layout"] == "Et|t*2|t*3|t*2L"
    found = overlay("interleaved")["model"]
    assert (found["pipeline_model_parallel_layout"], found["virtual_pipeline_model_parallel_size"]) == (None, 2)


def test_zero_3_is_megatron_fsdp() -> None:
    found = overlay("zero3")
    assert found["ddp"]["data_parallel_sharding_strategy"] == "optim_grads_params"
    assert found["dist"]["use_megatron_fsdp"] is True
    assert found["checkpoint"]["ckpt_format"] == "fsdp_dtensor"


@pytest.mark.longer
@pytest.mark.parametrize("kind", PROBLEMS)
def test_what_a_recipe_may_have_set_is_set_back(kind: str) -> None:
    found = overlay(kind)["model"]
    for key in ("num_layers_in_first_pipeline_stage", "recompute_modules", "virtual_pipeline_model_parallel_size"):
        assert key in found


@pytest.mark.parametrize(
    ("training", "fields"),
    [
        ({"gradients": "bf16"}, {"bf16": True}),
        ({"precision": "fp8", "primary_weights": "bf16"}, {"fp8": "hybrid", "fp8_recipe": "delayed"}),
        ({"precision": "mxfp8", "gradients": "bf16", "master_gradients": False}, {"fp8_recipe": "mxfp8"}),
        ({"precision": "nvfp4", "gradients": "bf16"}, {"fp4": "e2m1", "fp4_param_gather": True}),
    ],
)
def test_what_named_precisions_do_not_say_is_written_in_full(training: dict[str, Any], fields: dict[str, Any]) -> None:
    text = export(nest.evaluate(problem(DENSE_MODEL, training, {"tp": 2, "sp": True, "zero": 1})))[
        "megatron_bridge.yaml"
    ]
    told = read_mapping_text(text, "overlay.yaml")["mixed_precision"]
    assert told["_target_"].endswith("MixedPrecisionConfig")
    assert fields.items() <= told.items()
    assert told["grad_reduce_in_fp32"] == ("gradients" not in training)
    assert told.get("fp8_param_gather", True) == ("primary_weights" not in training)
    found = read(text).settings["training"]
    assert training.items() <= {"precision": "bf16", **found}.items()


def test_wide_gradients_of_fp16_are_refused() -> None:
    found = nest.evaluate(
        problem(DENSE_MODEL, {"precision": "fp16", "gradients": "fp32"}, {"tp": 2, "sp": True, "zero": 1})
    )
    with pytest.raises(InputError, match="Megatron-Bridge cannot train this"):
        export(found)


@pytest.mark.parametrize("precision", ["mxfp8", "nvfp4"])
def test_the_defaults_of_its_own_stack_can_be_exported(precision: str) -> None:
    """On Blackwell the stack says what the user left out: gradients in bf16, without copies."""
    given = problem(DENSE_MODEL, {"precision": precision, "stack": "megatron-bridge"}, {"tp": 2, "sp": True, "zero": 1})
    text = export(nest.evaluate({**given, "cluster": {**given["cluster"], "device": "b200-sxm"}}))
    told = read_mapping_text(text["megatron_bridge.yaml"], "overlay.yaml")
    assert told["mixed_precision"]["grad_reduce_in_fp32"] is False
    assert told["optimizer"]["main_grads_dtype"] == {"_call_": False, "_target_": "torch.bfloat16"}


OVERLAY = "model: {tensor_model_parallel_size: 2, pipeline_model_parallel_size: 2}\ntrain: {micro_batch_size: 1}\n"
SILENT: list[dict[str, Any]] = [{}, {"cross_entropy_loss_fusion": True}]


@pytest.mark.parametrize(
    ("model", "training", "loss"),
    [
        ({}, {}, "fused"),  # As performance recipes of Megatron-Bridge 0.6.2 and most of its others have it.
        ({"cross_entropy_loss_fusion": True}, {}, "fused"),
        ({"cross_entropy_loss_fusion": False}, {}, "unfused"),
        ({"cross_entropy_fusion_impl": "te"}, {}, "fused"),  # GPTModelProvider has the fusion on.
        ({"cross_entropy_fusion_impl": "te"}, {"stack": "megatron-core"}, "fused"),
        ({"cross_entropy_fusion_impl": "te", "cross_entropy_loss_fusion": False}, {}, "unfused"),
        ({"cross_entropy_fusion_impl": "native"}, {"loss": "fused"}, "unfused"),
        ({}, {"loss": "unfused"}, "unfused"),
        ({}, {"stack": "megatron-core"}, "unfused"),
        ({}, {"stack": "megatron-bridge"}, "fused"),
        ({"cross_entropy_loss_fusion": True}, {"loss": "unfused"}, "unfused"),
    ],
)
def test_the_cross_entropy_of_an_overlay_is_its_own_the_problem_s_or_the_recipes(
    tmp_path: Path, model: dict[str, Any], training: dict[str, Any], loss: str
) -> None:
    told = read_mapping_text(OVERLAY, "overlay.yaml")
    file = tmp_path / "overlay.yaml"
    file.write_text(json.dumps({**told, "model": {**told["model"], **model}}))
    begun = start(file, "megatron-bridge", problem(DENSE_MODEL, training, {}))
    assert begun.problem.training.loss == loss
    assert any(note.startswith("model.cross_entropy_fusion_impl is left") for note in begun.notes) == (model in SILENT)


def test_an_overlay_without_a_cross_entropy_needs_no_more_than_with_transformer_engine_s(tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.yaml" for name in ("silent", "te", "native")}
    for name, file in files.items():
        told = read_mapping_text(OVERLAY, "overlay.yaml")
        told["model"] |= {} if name == "silent" else {"cross_entropy_fusion_impl": name}
        file.write_text(json.dumps(told))
    asked = problem(DENSE_MODEL, {}, {})
    silent, te, native = (
        nest.evaluate(start(file, "megatron-bridge", asked).problem.to_dict()).stages[-1].memory
        for file in files.values()
    )
    assert silent == te < native


def test_adapters_are_trained_with_megatron_core_s_own_cross_entropy(tmp_path: Path) -> None:
    (tmp_path / "overlay.yaml").write_text(OVERLAY + f"peft: {{_target_: {FUSED_ADAPTERS}, dim: 8}}\n")
    found = start(tmp_path / "overlay.yaml", "megatron-bridge", problem(DENSE_MODEL, {}, {}))
    assert found.problem.training.loss == "unfused"


def test_shards_of_an_overlay_are_counted_where_the_ranks_are_known() -> None:
    text = OVERLAY + "ddp: {use_distributed_optimizer: true, num_distributed_optimizer_instances: 2}\n"
    assert read(text, LaunchOptions(2, 8)).settings["fixed"]["zero_degree"] == 2
    found = read(text)
    assert "zero_degree" not in found.settings["fixed"]
    assert any("give --nodes and --devices-per-node" in note for note in found.notes)


@pytest.mark.parametrize(("said", "etp"), [("null", 1), ("2", 2)])
def test_a_saved_configuration_splits_no_experts_beside_expert_parallelism(said: str, etp: int) -> None:
    text = (
        "_target_: megatron.bridge.training.config.ConfigContainer\n"
        "model: {num_layers: 4, hidden_size: 64, ffn_hidden_size: 256, num_attention_heads: 8, vocab_size: 64, "
        "seq_length: 64, num_moe_experts: 8, moe_router_topk: 2, tensor_model_parallel_size: 2, "
        "sequence_parallel: true, "
        f"expert_model_parallel_size: 4, expert_tensor_parallel_size: {said}}}\n"
        "train: {micro_batch_size: 1, global_batch_size: 64}\n"
    )
    assert read(text, LaunchOptions(2, 8)).settings["fixed"]["etp"] == etp
