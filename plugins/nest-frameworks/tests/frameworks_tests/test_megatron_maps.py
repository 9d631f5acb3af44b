"""Flags of Megatron-LM in YAML: maps with variables, as Megatron-MoE-ModelZoo has them, and experiments of Primus."""

from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from nest.deployment import MODEL_LEFT, LaunchOptions
from nest.errors import InputError
from nest_frameworks.megatron.reading.read import read_megatron

ZOO = """
# As model_configs/benchmarking/Mixtral-8x7B.yaml of yanring/Megatron-MoE-ModelZoo, fewer layers
ENV_VARS: {CUDA_DEVICE_MAX_CONNECTIONS: 1, MBS: 1}
MODEL_ARGS:
  --tensor-model-parallel-size: ${TP}
  --pipeline-model-parallel-size: ${PP:-2}
  --expert-model-parallel-size: 4
  --expert-tensor-parallel-size: 1
  --sequence-parallel: true
  --use-distributed-optimizer: ${DISTRIBUTED}
  --micro-batch-size: ${MBS}
  --global-batch-size: $GBS
  --data-path: ${DATA_PATH}
  --num-layers: 8
  --hidden-size: 512
  --num-attention-heads: 8
  --num-experts: 8
  --seq-length: 512
  --max-position-embeddings: 512
  --vocab-size: 32000
  --position-embedding-type: rope
  --bf16: true
"""
SAID = {"TP": "2", "GBS": "64", "DISTRIBUTED": "true"}


def zoo(**said: str) -> Any:
    return read_megatron(ZOO, LaunchOptions(nodes=2, devices_per_node=8, variables=said))


def test_variables_of_a_map_are_those_of_its_environment_or_said_beside() -> None:
    found = zoo(**SAID).settings
    assert {"tp": 2, "pp": 2, "dp": 4, "ep": 4, "micro_batch": 1, "zero": 1}.items() <= found["fixed"].items()
    assert found["training"]["global_batch"] == 64
    assert zoo(**SAID, MBS="2", PP="4").settings["fixed"].items() >= {"micro_batch": 2, "pp": 4, "dp": 2}.items()
    assert zoo(**{**SAID, "DISTRIBUTED": "false"}).settings["fixed"]["zero"] == 0


@pytest.mark.parametrize("name", ["TP", "GBS"])
def test_a_variable_that_nothing_sets_is_asked_for(name: str) -> None:
    with pytest.raises(InputError, match=rf"is '\${name}', which nothing sets; give `-- {name}=VALUE`"):
        zoo(**{key: value for key, value in SAID.items() if key != name})


PRIMUS = """
# As examples/megatron/configs/MI300X/llama3.1_70B-BF16-pretrain.yaml of AMD-AGI/Primus 08008ce5
work_group: ${PRIMUS_TEAM:amd}
modules:
  pre_trainer:
    framework: megatron
    config: pre_trainer.yaml
    model: llama3.1_70B.yaml
    overrides:
      stderr_sink_level: DEBUG
      micro_batch_size: 1
      global_batch_size: 8
      seq_length: 8192
      max_position_embeddings: 8192
      lr_decay_iters: null
      tensor_model_parallel_size: ${PRIMUS_TP:1}
      overlap_grad_reduce: true
      use_torch_fsdp2: true
      use_distributed_optimizer: false
      gradient_accumulation_fusion: false
      sequence_parallel: 1
      recompute_granularity: full
      recompute_method: block
      recompute_num_layers: 80
      enable_primus_turbo: true
"""
EIGHT = LaunchOptions(nodes=1, devices_per_node=8)


def test_an_experiment_of_primus_is_read_with_its_model() -> None:
    found = read_megatron(PRIMUS, EIGHT)
    assert found.settings["model"] == "llama-3.1-70b"
    assert {"dp": 8, "zero": 3, "recompute": "full", "micro_batch": 1}.items() <= found.settings["fixed"].items()
    training = found.settings["training"]
    assert (training["precision"], training["global_batch"], training["sequence_length"]) == ("bf16", 8, 8192)
    assert not any("does not know" in note for note in found.notes)


def test_what_an_experiment_leaves_out_is_as_primus_has_it() -> None:
    text = PRIMUS.replace("micro_batch_size: 1", "moe_router_dtype: fp32").replace("global_batch_size: 8", "lr: 1e-5")
    found = read_megatron(text, EIGHT).settings
    assert (found["fixed"]["micro_batch"], found["training"]["global_batch"]) == (2, 16)


def test_overrides_of_a_models_widths_are_refused_and_those_of_its_layers_read() -> None:
    with pytest.raises(InputError, match=r"overrides has hidden_size, which change the model 'llama3.1_70B'"):
        read_megatron(f"{PRIMUS}      hidden_size: 4\n", EIGHT)
    same = ("swiglu: true", "group_query_attention: true", "multi_latent_attention: false", "kv_channels: null")
    for said in same:
        assert read_megatron(f"{PRIMUS}      {said}\n", EIGHT).settings["model"] == "llama-3.1-70b"
    for said, key, value in (
        ("swiglu: false", "gated_mlp", False),
        ("group_query_attention: false", "kv_heads", 64),
        ("multi_latent_attention: true", "mla", ANY),
    ):
        model = read_megatron(f"{PRIMUS}      {said}\n", EIGHT).settings["model"]["transformer"]
        assert (model["layers"], model["vocab"], model[key]) == (80, 128256, value)
    assert read_megatron(f"{PRIMUS}      num_layers: 4\n", EIGHT).settings["model"]["num_hidden_layers"] == 4
    assert read_megatron(f"{PRIMUS}      num_layers: 80\n", EIGHT).settings["model"] == "llama-3.1-70b"
    with pytest.raises(InputError, match="num_layers is 'x'"):
        read_megatron(f"{PRIMUS}      num_layers: x\n", EIGHT)


def test_fine_tuning_is_read_with_its_adapters() -> None:
    text = PRIMUS.replace("pre_trainer", "post_trainer").replace("config: post_trainer", "config: sft_trainer")
    text += "      lora: {enabled: true, dim: 16, target_modules: [linear_qkv, linear_fc1]}\n"
    for model, targets in (("llama3.1_70B", ["qkv_proj", "gate_up_proj"]), ("deepseek_v2_lite", ["gate_up_proj"])):
        tuned = text.replace("llama3.1_70B", model).replace("recompute_num_layers: 80", "recompute_num_layers: 27")
        found = read_megatron(tuned, EIGHT)
        assert found.settings["training"]["trainable"] == {"lora": {"rank": 16, "targets": targets}}
        assert any("share one in Primus" in note for note in found.notes) == (model == "deepseek_v2_lite")


def test_a_trainer_of_another_kind_is_refused() -> None:
    with pytest.raises(InputError, match=r"has post_trainer of pre_trainer\.yaml"):
        read_megatron(PRIMUS.replace("  pre_trainer:", "  post_trainer:"), EIGHT)
    with pytest.raises(InputError, match="has neither pre_trainer nor post_trainer"):
        read_megatron(PRIMUS.replace("  pre_trainer:", "  evaluator:"), EIGHT)


def test_a_model_that_the_catalogue_lacks_is_described_by_its_file(tmp_path: Path) -> None:
    folder = tmp_path / "primus" / "configs" / "models" / "megatron"
    folder.mkdir(parents=True)
    base = "{extends: [own.yaml], add_bias_linear: false, normalization: RMSNorm, swiglu: true, kv_lora_rank: 32}"
    (folder / "base.yaml").write_text(base)
    widths = "num_layers: 80, hidden_size: 1024, num_attention_heads: 8, ffn_hidden_size: 4096, vocab_size: 1000"
    (folder / "own.yaml").write_text(
        f"{{bases: base.yaml, {widths}, moe_router_topk: 2, position_embedding_type: rope}}"
    )
    options = LaunchOptions(nodes=1, devices_per_node=8, folder=tmp_path / "examples")
    widths_of = read_megatron(PRIMUS.replace("llama3.1_70B", "own"), options).settings["model"]["transformer"]
    assert (widths_of["layers"], widths_of["ffn"], widths_of["gated_mlp"]) == (80, 4096, True)
    assert "experts" not in widths_of


def test_a_model_of_primus_that_nobody_knows_is_named() -> None:
    assert any(
        "grok1" in note and note.endswith(MODEL_LEFT)
        for note in read_megatron(PRIMUS.replace("llama3.1_70B", "grok1"), EIGHT).notes
    )


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("patch_zero_bubble: true", "a schedule of its own, which nest does not price"),
        ("decoder_pipeline_manual_split_list: [1, 2]", "stages of its own"),
        ("recompute_layer_ids: [0]", "one by one"),
        ("use_custom_parallel_mesh: 4", "--use-custom-parallel-mesh is no flag of Megatron-LM that nest reads"),
        ("turbo_tensor_parallel_size: 4", "--turbo-tensor-parallel-size is no flag of Megatron-LM that nest reads"),
    ],
)
def test_what_primus_does_in_its_own_way_is_refused(line: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_megatron(f"{PRIMUS}      {line}\n", EIGHT)


def test_other_frameworks_of_primus_are_refused() -> None:
    with pytest.raises(InputError, match="runs torchtitan"):
        read_megatron(PRIMUS.replace("framework: megatron", "framework: torchtitan"), EIGHT)
