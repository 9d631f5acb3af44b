"""Keys that a file leaves out, or that few people write, do what they do in its framework."""

from typing import Any

import pytest

from frameworks_tests.plans import DENSE as MODEL
from frameworks_tests.plans import plan
from frameworks_tests.test_megatron_read import DENSE, read
from nest.deployment import LaunchOptions
from nest.errors import InputError
from nest.hooks.registry import registry
from nest.io import read_mapping_text, yaml_text
from nest_frameworks import nanotron
from nest_frameworks.megatron.bridge import read as read_bridge
from nest_frameworks.megatron.relatives.nemo import read as read_nemo
from nest_frameworks.megatron.relatives.verl import read as read_verl
from nest_frameworks.torchtitan import PYTHON_FILE, TOML_FILE
from nest_frameworks.torchtitan.reading import read as read_titan
from nest_frameworks.trainers.reading import read_axolotl, read_llama_factory, read_transformers

ONE = LaunchOptions(nodes=1, devices_per_node=8)


def changed(text: str, keys: str) -> str:
    """A file with further keys, `section.key: value`."""
    content = read_mapping_text(text, "x.yaml")
    for path, value in read_mapping_text(keys, "x.yaml").items():
        *above, key = path.split(".")
        section: Any = content
        for name in above:
            section = section.setdefault(name, {})
        section[key] = value
    return yaml_text(content)


VERL = """
actor_rollout_ref:
  model: {path: meta-llama/Llama-3.1-8B}
  actor: {strategy: %s, ppo_micro_batch_size_per_gpu: 1}
"""
ACTOR = "actor_rollout_ref.actor"


@pytest.mark.parametrize(
    ("strategy", "keys", "training"),
    [
        ("fsdp", "{}", {"optimizer": "adam", "gradients": None}),
        ("fsdp2", f"{ACTOR}.fsdp_config.model_dtype: fp32", {"optimizer": "adam"}),
        ("fsdp", f"{ACTOR}.fsdp_config.model_dtype: bfloat16", {"optimizer": "adam-bf16", "master_weights": False}),
        ("fsdp", f"{ACTOR}.fsdp_config.mixed_precision.reduce_dtype: bf16", {"gradients": "bf16"}),
        ("fsdp", f"{ACTOR}.fsdp_config.mixed_precision.param_dtype: fp16", {"precision": "fp16"}),
        ("fsdp", "actor_rollout_ref.model.override_config.attn_implementation: eager", {"attention": "unfused"}),
        ("megatron", f"{ACTOR}.optim.exp_avg_dtype: bf16", {"optimizer": "adam"}),
        (
            "megatron",
            f"{ACTOR}.optim.use_precision_aware_optimizer: true\n{ACTOR}.optim.exp_avg_dtype: bf16\n"
            f"{ACTOR}.optim.exp_avg_sq_dtype: bf16\n{ACTOR}.optim.main_grads_dtype: bf16",
            {"optimizer": "adam-bf16", "gradients": "bf16", "master_gradients": False},
        ),
    ],
)
def test_verl_keeps_what_its_keys_say(strategy: str, keys: str, training: dict[str, Any]) -> None:
    found = read_verl(changed(VERL % strategy, keys), ONE).settings["training"]
    assert {key: found.get(key) for key in training} == training
    assert found["overlap"]["data"] == (strategy != "megatron")  # FSDP prefetches; Megatron's DDP is told to.


@pytest.mark.parametrize(
    ("strategy", "keys", "told"),
    [
        ("fsdp", "actor_rollout_ref.model.override_config.num_hidden_layers: 4", "override_config.num_hidden_layers"),
        ("fsdp", f"{ACTOR}.fsdp_config.tensor_parallel_size: 2", "fsdp_config.tensor_parallel_size"),
        ("fsdp", f"{ACTOR}.megatron.tensor_model_parallel_size: 2", "whose actor has no section megatron"),
        ("megatron", "actor_rollout_ref.model.lora_rank: 8", "model.lora_rank"),
        ("megatron", f"{ACTOR}.optim.override_optimizer_config.exp_avg_dtype: bf16", "exp_avg_dtype"),
    ],
)
def test_verl_is_refused_where_keys_split_or_change_the_model(strategy: str, keys: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_verl(changed(VERL % strategy, keys), ONE)


def test_pytorch_s_fsdp_communicates_behind_the_backward_pass() -> None:
    sharded = {**DENSE, "--pipeline-model-parallel-size": "1", "--use-torch-fsdp2": ""}
    assert read(sharded).settings["training"]["overlap"]["data"]


TITAN = """
[model]
flavor = "8B"
[training]
dtype = "%s"
[parallelism]
data_parallel_shard_degree = %d
data_parallel_replicate_degree = %d
tensor_parallel_degree = %d
context_parallel_degree = %d
pipeline_parallel_degree = %d
"""


@pytest.mark.parametrize(
    ("degrees", "precision"),
    [
        ((8, 1, 1, 1, 1), "bf16"),  # FSDP
        ((4, 1, 2, 1, 1), "bf16"),
        ((1, 1, 4, 2, 1), "bf16"),  # Context parallelism shards, too.
        ((1, 8, 1, 1, 1), "bf16"),  # DDP, with autocast
        ((1, 1, 8, 1, 1), "fp32"),
        ((1, 1, 1, 1, 8), "fp32"),
        ((1, 1, 2, 1, 4), "fp32"),
    ],
)
def test_torchtitan_0_2_mixes_precisions_by_fsdp_or_ddp(degrees: tuple[int, ...], precision: str) -> None:
    found = read_titan(TITAN % ("float32", *degrees))
    assert found.settings["training"]["precision"] == precision
    assert any("trains in single precision" in note for note in found.notes) == (precision == "fp32")
    whole = read_titan(TITAN % ("bfloat16", *degrees)).settings["training"]
    assert (whole["precision"], whole["master_weights"], whole["optimizer"]) == ("bf16", False, "adam-bf16")


@pytest.mark.parametrize(
    ("fixed", "files"),
    [
        ({"dp": 8, "tp": 2, "sp": True, "zero": 3}, {TOML_FILE, PYTHON_FILE}),
        ({"dp": 1, "tp": 8, "sp": True}, {PYTHON_FILE}),
    ],
)
def test_torchtitan_0_2_gets_no_file_that_it_would_run_in_single_precision(
    fixed: dict[str, Any], files: set[str]
) -> None:
    model = {**MODEL, "kv_heads": 8}
    found = registry().exporters()["torchtitan"].export(plan(fixed, model, stack="fsdp"))
    assert {name for name in found if name in (TOML_FILE, PYTHON_FILE)} == files


NANOTRON = """
parallelism: {dp: 8, tp: 1, pp: 1}
tokens: {micro_batch_size: 1, sequence_length: 256, batch_accumulation_per_replica: 1}
model: {dtype: %s}
optimizer: {zero_stage: 0, accumulate_grad_in_fp32: %s, optimizer_factory: {name: adamW}}
"""


@pytest.mark.parametrize(
    ("precision", "wide", "kept"),
    [
        ("bfloat16", "true", ("adamw", "fp32", None)),
        ("bfloat16", "false", ("adam-bf16", "bf16", False)),
        ("float16", "false", ("adam-bf16", "fp16", False)),
        ("float32", "false", ("adamw", None, None)),
    ],
)
def test_nanotron_keeps_single_precision_beside_such_gradients_only(
    precision: str, wide: str, kept: tuple[str | None, ...]
) -> None:
    found = nanotron.read(NANOTRON % (precision, wide)).settings["training"]
    assert tuple(found.get(key) for key in ("optimizer", "gradients", "master_weights")) == kept


@pytest.mark.longer
def test_nanotron_is_told_to_add_up_gradients_as_priced() -> None:
    for told in ({}, {"gradients": "fp32"}, {"precision": "fp16"}):
        text = nanotron.export(plan({"dp": 8}, MODEL, stack="nanotron", **told))[nanotron.YAML_FILE]
        assert read_mapping_text(text, "x.yaml")["optimizer"]["accumulate_grad_in_fp32"] is True
    for narrow in ({"gradients": "bf16"}, {"precision": "fp16", "gradients": "fp16"}):
        with pytest.raises(InputError, match=r"training\.gradients: fp32"):
            nanotron.export(plan({"dp": 8}, MODEL, stack="nanotron", **narrow))


@pytest.mark.longer
@pytest.mark.parametrize(
    ("training", "wide"), [({}, True), ({"gradients": "fp32"}, True), ({"gradients": "bf16"}, False)]
)
def test_galvatron_is_told_to_reduce_gradients_as_priced(training: dict[str, str], wide: bool) -> None:
    files = registry().exporters()["galvatron"].export(plan({"dp": 8}, MODEL, **training))
    assert f"runtime.parallel.reduce_in_fp32={wide}" in files["galvatron_overrides.sh"]


TRAINER = "per_device_train_batch_size: 1\nmax_length: 512\nbf16: true\n"


@pytest.mark.parametrize(
    ("read_file", "text", "kept"),
    [
        (read_transformers, TRAINER, ("adamw", None, None)),
        (read_transformers, f"{TRAINER}torch_dtype: bfloat16", ("adam-bf16", "bf16", False)),
        (read_transformers, f"{TRAINER}dtype: float32", ("adamw", None, None)),
        (
            read_transformers,
            f"{TRAINER}dtype: bfloat16\nfsdp: full_shard",
            ("adamw", None, None),
        ),  # Accelerate upcasts.
        (read_transformers, f"{TRAINER}dtype: bfloat16\nuse_peft: true", ("adamw", None, None)),
        (read_transformers, f"{TRAINER}dtype: bfloat16\noptim: adamw_bnb_8bit", ("adam-8bit", "bf16", False)),
        (read_axolotl, "base_model: x\nmicro_batch_size: 1\nbf16: auto", ("adam-bf16", "bf16", False)),
        (read_llama_factory, "stage: sft\nfinetuning_type: full\npure_bf16: true", ("adam-bf16", "bf16", False)),
    ],
)
def test_weights_loaded_in_16_bits_stay_so_without_sharding(
    read_file: Any, text: str, kept: tuple[str | None, ...]
) -> None:
    found = read_file(text, ONE).settings["training"]
    assert tuple(found.get(key) for key in ("optimizer", "gradients", "master_weights")) == kept


NEMO = """
trainer: {num_nodes: 1, devices: 8, precision: bf16}
model: {mcore_gpt: true, megatron_amp_O2: true, micro_batch_size: 1, global_batch_size: 16, encoder_seq_length: 256,
  max_position_embeddings: 256, num_layers: 16, hidden_size: 512, num_attention_heads: 8, override_vocab_size: 1000,
  pipeline_model_parallel_size: 4, virtual_pipeline_model_parallel_size: 2, optim: {name: %s}}
"""


@pytest.mark.parametrize(
    ("optimizer", "keys", "overlap"),
    [
        ("distributed_fused_adam", "{}", (True, False)),
        ("distributed_fused_adam", "model.optim.overlap_grad_sync: false", (False, False)),
        ("mcore_distributed_optim", "{}", (False, False)),
        ("mcore_distributed_optim", "model.overlap_p2p_comm: true\nmodel.optim.overlap_grad_sync: true", (True, None)),
    ],
)
def test_nemo_overlaps_what_its_optimizer_does(optimizer: str, keys: str, overlap: tuple[bool, bool | None]) -> None:
    found = read_nemo(changed(NEMO % optimizer, keys)).settings["training"]["overlap"]
    assert (found["data"], found.get("pipeline")) == overlap


def test_what_nemo_passes_to_megatron_core_is_refused_where_it_may_change_the_model() -> None:
    with pytest.raises(InputError, match="num_layers_in_first_pipeline_stage"):
        read_nemo(changed(NEMO % "adam", "model.mcore_customization_config.num_layers_in_first_pipeline_stage: 2"))


@pytest.mark.parametrize(
    ("read_file", "text", "section"),
    [
        (read_nemo, NEMO % "adam", "model"),
        (read_bridge, "model: {tensor_model_parallel_size: 2}\n", "model"),
        (read_verl, VERL % "megatron", f"{ACTOR}.megatron.override_transformer_config"),
    ],
)
def test_offloaded_activations_need_the_switch_of_megatron_core(read_file: Any, text: str, section: str) -> None:
    """`cpu_offloading` of TransformerConfig, without which the fields beside it have no effect."""
    beside = {"num_layers": 31, "activations": "true", "weights": "true"}
    keys = "".join(f"{section}.cpu_offloading_{name}: {value}\n" for name, value in beside.items())
    plain = read_file(text, ONE)
    for switch in ("", f"{section}.cpu_offloading: false\n"):
        assert read_file(changed(text, keys + switch), ONE) == plain
    with pytest.raises(InputError, match="cpu_offloading is True"):
        read_file(changed(text, f"{keys}{section}.cpu_offloading: true"), ONE)
