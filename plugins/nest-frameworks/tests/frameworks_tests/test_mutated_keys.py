"""Every key of a launch file counts: removed, renamed, doubled or elsewhere, it changes the answer or is told."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from frameworks_tests.test_megatron_maps import PRIMUS
from nest.deployment import LaunchOptions, Reading
from nest.errors import InputError
from nest.io import toml_text, yaml_text
from nest_frameworks import nest_plan_readers

READERS = {each.name: each for each in nest_plan_readers()}
Keys = Mapping[str, Any]


def flags(call: str, joint: str = "-") -> Callable[[Keys], str]:
    """A script that gives a program flags."""

    def write(keys: Keys) -> str:
        words = (f"--{key.replace('_', joint)}" + ("" if value is True else f" {value}") for key, value in keys.items())
        return f"{call} {' '.join(words)}\n"

    return write


def overrides(call: str) -> Callable[[Keys], str]:
    """A script that gives a program `key=value`."""
    return lambda keys: f"{call} {' '.join(f'{key}={value}' for key, value in keys.items())}\n"


def nested(keys: Keys) -> dict[str, Any]:
    """Sections of keys joined by dots."""
    content: dict[str, Any] = {}
    for key, value in keys.items():
        *above, last = key.split(".")
        section = content
        for name in above:
            section = section.setdefault(name, {})
        section[last] = value
    return content


TWO = LaunchOptions(nodes=2, devices_per_node=8)


@frozen
class File:
    """A file whose keys differ from what they are where they are left out.

    Attributes:
        reader: name of the plan reader.
        keys: sections joined by dots.
        write: makes the text.
        options: what else is said of the launch.
        script: whether a shell reads it.
    """

    reader: str
    keys: Keys
    write: Callable[[Keys], str]
    options: LaunchOptions = TWO
    script: bool = False

    def read(self, text: str, folder: Path | None = None) -> Reading:
        """What the reader says of a text."""
        options = LaunchOptions(self.options.nodes, self.options.devices_per_node, folder=folder)
        return READERS[self.reader].read_launch(text, options)


MEGATRON = {
    "num_layers": 16, "hidden_size": 1024, "num_attention_heads": 16, "ffn_hidden_size": 2816, "seq_length": 1024,
    "max_position_embeddings": 1024, "vocab_size": 32000, "swiglu": True, "normalization": "RMSNorm",
    "position_embedding_type": "rope", "untie_embeddings_and_output_weights": True, "disable_bias_linear": True,
    "group_query_attention": True, "num_query_groups": 4, "tensor_model_parallel_size": 2, "sequence_parallel": True,
    "pipeline_model_parallel_size": 2, "context_parallel_size": 2, "num_layers_per_virtual_pipeline_stage": 4,
    "micro_batch_size": 2, "global_batch_size": 64, "recompute_granularity": "full", "recompute_method": "block",
    "recompute_num_layers": 2, "use_distributed_optimizer": True, "overlap_grad_reduce": True,
    "overlap_param_gather": True, "tp_comm_overlap": True, "bf16": True, "optimizer": "sgd",
    "attention_backend": "flash", "cuda_graph_impl": "local", "no_bias_swiglu_fusion": True,
    "cp_comm_type": "all_gather",
    "grad_reduce_in_bf16": True,
}  # fmt: skip
SWIFT = {
    "model": "Qwen/Qwen3-8B", "max_length": 4096, "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2,
    "context_parallel_size": 2, "micro_batch_size": 2, "global_batch_size": 64, "recompute_granularity": "full",
    "recompute_method": "block", "recompute_num_layers": 2, "sequence_parallel": "true", "packing": "true",
    "train_type": "lora", "lora_rank": 16, "attention_backend": "fused", "overlap_grad_reduce": "true",
}  # fmt: skip
A, M = "actor_rollout_ref.actor", "actor_rollout_ref.model"
VERL = {
    f"{A}.strategy": "megatron", f"{M}.path": "Qwen/Qwen3-8B", f"{A}.ppo_mini_batch_size": 64,
    f"{A}.ppo_micro_batch_size_per_gpu": 2, f"{A}.megatron.tensor_model_parallel_size": 2,
    f"{A}.megatron.pipeline_model_parallel_size": 2, f"{A}.megatron.context_parallel_size": 2,
    "trainer.nnodes": 2, "trainer.n_gpus_per_node": 8,
}  # fmt: skip
MAXTEXT = {
    "model_name": "llama2-7b", "per_device_batch_size": 4, "ici_fsdp_parallelism": 4, "ici_tensor_parallelism": 2,
    "ici_context_parallelism": 2, "max_target_length": 4096, "remat_policy": "minimal", "dtype": "float32",
    "gradient_accumulation_steps": 2, "opt_type": "sgd", "attention": "dot_product",
    "optimizer_memory_host_offload": True,
}  # fmt: skip
AXOLOTL = {
    "base_model": "meta-llama/Llama-3.1-8B", "sequence_len": 2048, "micro_batch_size": 2,
    "gradient_accumulation_steps": 4, "sample_packing": True, "gradient_checkpointing": True, "dp_shard_size": 4,
    "dp_replicate_size": 2, "tensor_parallel_size": 2, "optimizer": "sgd", "fp16": True, "bf16": False,
    "fsdp_version": 2, "fsdp_config.reshard_after_forward": False, "adapter": "lora", "lora_r": 16,
    "plugins": ["axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"], "attn_implementation": "eager",
}  # fmt: skip
FACTORY = {
    "model_name_or_path": "Qwen/Qwen2.5-7B", "stage": "pt", "finetuning_type": "full", "cutoff_len": 1024,
    "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "bf16": True, "optim": "sgd",
    "enable_liger_kernel": True, "disable_gradient_checkpointing": True, "packing": True, "flash_attn": "disabled",
    "deepspeed.zero_optimization.stage": 2,
    "deepspeed.bf16.enabled": True,
}  # fmt: skip
TRAINER = {
    "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "bf16": True, "gradient_checkpointing": True,
    "optim": "sgd", "fsdp": "full_shard", "model_name_or_path": "Qwen/Qwen3-8B", "use_liger_kernel": True,
    "max_seq_length": 1024, "attn_implementation": "eager",
}  # fmt: skip
TITAN = {
    "model.name": "qwen3", "model.flavor": "8B", "training.local_batch_size": 4, "training.seq_len": 4096,
    "training.global_batch_size": 64, "parallelism.data_parallel_shard_degree": 2,
    "parallelism.tensor_parallel_degree": 2,
    "parallelism.context_parallel_degree": 2, "parallelism.pipeline_parallel_degree": 2,
    "parallelism.pipeline_parallel_schedule": "GPipe", "parallelism.context_parallel_rotate_method": "alltoall",
    "activation_checkpoint.mode": "full", "optimizer.name": "Adam", "compile.enable": True,
    "parallelism.enable_async_tensor_parallel": True,
}  # fmt: skip
DEEPSPEED = {
    "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "bf16.enabled": True,
    "zero_optimization.stage": 2, "zero_optimization.overlap_comm": True,
    "zero_optimization.offload_optimizer.device": "cpu", "optimizer.type": "SGD",
}  # fmt: skip
ACCELERATE = {
    "distributed_type": "FSDP", "num_processes": 16, "num_machines": 2, "mixed_precision": "bf16",
    "fsdp_config.fsdp_version": 2, "fsdp_config.fsdp_reshard_after_forward": False,
    "fsdp_config.fsdp_activation_checkpointing": True,
}  # fmt: skip
NANOTRON = {
    "parallelism.dp": 2, "parallelism.tp": 4, "parallelism.pp": 2, "parallelism.pp_engine": "1f1b",
    "parallelism.tp_mode": "REDUCE_SCATTER", "parallelism.recompute_layer": True, "tokens.micro_batch_size": 2,
    "tokens.batch_accumulation_per_replica": 4, "tokens.sequence_length": 2048, "optimizer.zero_stage": 1,
    "model.dtype": "bfloat16", "model.model_config.is_llama_config": True, "model.model_config.num_hidden_layers": 8,
    "model.model_config.hidden_size": 512, "model.model_config.num_attention_heads": 8,
    "model.model_config.intermediate_size": 1536, "model.model_config.vocab_size": 1000,
}  # fmt: skip
BRIDGE = {
    "model.tensor_model_parallel_size": 2, "model.pipeline_model_parallel_size": 2, "model.context_parallel_size": 2,
    "model.sequence_parallel": True, "model.seq_length": 2048, "train.micro_batch_size": 2,
    "train.global_batch_size": 64, "model.recompute_granularity": "full", "model.recompute_method": "block",
    "model.recompute_num_layers": 2, "comm_overlap.tp_comm_overlap": True, "model.cuda_graph_impl": "local",
    "ddp.use_distributed_optimizer": True, "mixed_precision": "bf16_mixed",
}  # fmt: skip
NEMO = {
    "trainer.devices": 8, "trainer.num_nodes": 2, "trainer.precision": "bf16-mixed", "model.micro_batch_size": 2,
    "model.global_batch_size": 64, "model.tensor_model_parallel_size": 2, "model.pipeline_model_parallel_size": 2,
    "model.context_parallel_size": 2, "model.sequence_parallel": True, "model.encoder_seq_length": 2048,
    "model.num_layers": 8, "model.hidden_size": 512, "model.num_attention_heads": 8, "model.ffn_hidden_size": 1024,
    "model.activations_checkpoint_granularity": "full", "model.activations_checkpoint_method": "block",
    "model.activations_checkpoint_num_layers": 2, "model.optim.name": "distributed_fused_adam",
}  # fmt: skip

QLORA = {
    "model_name_or_path": "Qwen/Qwen2.5-7B", "stage": "sft", "cutoff_len": 1024,
    "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "bf16": True, "quantization_bit": 4,
    "double_quantization": False, "lora_rank": 16, "lora_target": "q_proj", "additional_target": "lm_head",
}  # fmt: skip
NARROW = {
    "base_model": "Qwen/Qwen3-30B-A3B", "sequence_len": 2048, "micro_batch_size": 2, "adapter": "qlora", "lora_r": 16,
    "gradient_accumulation_steps": 4, "load_in_4bit": True, "quantize_moe_experts": True,
    "lora_target_modules": r".*self_attn.(q|k)_proj", "lora_target_parameters": ["mlp.experts.down_proj"],
    "bnb_config_kwargs.bnb_4bit_use_double_quant": False, "experts_implementation": "eager",
    "plugins": ["axolotl.integrations.kernels.KernelsPlugin", "axolotl.integrations.liger.LigerPlugin"],
    "liger_cross_entropy": True,
}  # fmt: skip
BACK_END = {
    "model_name_or_path": "Qwen/Qwen3-30B-A3B", "stage": "sft", "finetuning_type": "full", "cutoff_len": 4096,
    "per_device_train_batch_size": 2, "gradient_accumulation_steps": 8, "bf16": True,
    "tensor_model_parallel_size": 2, "sequence_parallel": True, "pipeline_model_parallel_size": 2,
    "expert_model_parallel_size": 2, "use_distributed_optimizer": True, "overlap_grad_reduce": True,
    "recompute_granularity": "full", "moe_token_dispatcher_type": "alltoall",
    "accumulate_allreduce_grads_in_fp32": True,
}  # fmt: skip
TUNED = {
    "data.train_batch_size": 64, "data.micro_batch_size_per_gpu": 8, "data.max_length": 2048,
    "model.partial_pretrain": "Qwen/Qwen3-8B", "model.lora_rank": 16, "model.target_modules": "q_proj",
    "model.enable_gradient_checkpointing": False, "model.fsdp_config.model_dtype": "bf16",
    "ulysses_sequence_parallel_size": 2,
}  # fmt: skip
MAMBA = {
    "hybrid_layer_pattern": "MEM*E-M-/*E", "hidden_size": 1024, "num_attention_heads": 16, "ffn_hidden_size": 2048,
    "vocab_size": 32000, "seq_length": 1024, "micro_batch_size": 2, "global_batch_size": 64, "bf16": True,
    "group_query_attention": True, "num_query_groups": 4, "kv_channels": 128, "disable_bias_linear": True,
    "untie_embeddings_and_output_weights": True, "num_experts": 16, "moe_router_topk": 4, "moe_ffn_hidden_size": 512,
    "moe_latent_size": 256, "moe_shared_expert_intermediate_size": 768, "mamba_num_heads": 24,
    "mamba_head_dim": 128, "mamba_num_groups": 4, "mamba_state_dim": 64, "moe_grouped_gemm": True,
    "position_embedding_type": "none", "normalization": "RMSNorm",
}  # fmt: skip


def as_yaml(keys: Keys) -> str:
    return yaml_text(nested(keys))


def as_map(keys: Keys) -> str:
    return yaml_text({"MODEL_ARGS": {f"--{key.replace('_', '-')}": value for key, value in keys.items()}})


RUN = "torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py"
FILES = {
    "megatron": File("megatron", MEGATRON, flags(RUN), script=True),
    "maps": File("megatron", MEGATRON, as_map),
    "ms-swift": File("ms-swift", SWIFT, flags("NNODES=2 NPROC_PER_NODE=8 megatron sft", "_"), script=True),
    "verl": File("verl", VERL, overrides("python3 -m verl.trainer.main_ppo"), LaunchOptions(), script=True),
    "maxtext": File("maxtext", MAXTEXT, overrides("python3 -m MaxText.train base.yml"), script=True),
    "axolotl": File("axolotl", AXOLOTL, as_yaml),
    "llama-factory": File("llama-factory", FACTORY, as_yaml),
    "transformers": File("transformers", TRAINER, lambda keys: json.dumps(nested(keys))),
    "torchtitan": File("torchtitan", TITAN, lambda keys: toml_text(nested(keys))),
    "deepspeed": File("deepspeed", DEEPSPEED, lambda keys: json.dumps(nested(keys))),
    "accelerate": File("accelerate", ACCELERATE, as_yaml, LaunchOptions()),
    "nanotron": File("nanotron", NANOTRON, as_yaml, LaunchOptions()),
    "megatron-bridge": File("megatron-bridge", BRIDGE, as_yaml),
    "nemo": File("nemo", NEMO, as_yaml, LaunchOptions()),
    "qlora": File("llama-factory", QLORA, as_yaml),
    "narrow": File("axolotl", NARROW, as_yaml),
    "back end": File("llama-factory", BACK_END, as_yaml),
    "script": File("transformers", TRAINER, flags(f"{RUN[:-15]} train.py", "_"), script=True),
    "tuned": File("verl", TUNED, overrides(f"{RUN[:-15]} -m verl.trainer.fsdp_sft_trainer"), script=True),
    "mamba": File("megatron", MAMBA, flags(RUN), script=True),
}
"""By the kind of file; experiments of Primus are maps with other names (`PRIMUS`)."""


SAME = {
    "max_position_embeddings": "positions rotate",
    "parallelism.data_parallel_shard_degree": "it is what is left of the devices",
    "ici_fsdp_parallelism": "it is what is left of the devices",
    "dp_shard_size": "it is what is left of the devices",
    "dp_replicate_size": "it is what is left of the devices",
    "fsdp_version": "both versions are priced alike",
    "fsdp_config.fsdp_version": "both versions are priced alike",
    "num_machines": "num_processes has all of them",
    "bf16": "fp16 stands beside it in the file of Axolotl",
    "model.dtype": "nanotron's own",
    "stage": "steps of both kinds take as long",
    f"{A}.strategy": "the sections below say it",
}
"""Keys that may be left out: what is then the case is what they say."""


def every(scripts: bool = False) -> list[Any]:
    """Files and keys of all kinds, or of those that a shell reads."""
    return [
        pytest.param(file, key, id=f"{kind} {key}")
        for kind, file in FILES.items()
        if file.script or not scripts
        for key in file.keys
    ]


def differs(file: File, keys: Keys) -> bool:
    """Whether other keys give another answer, say something else, or are refused."""
    plain = file.read(file.write(file.keys))
    try:
        other = file.read(file.write(keys))
    except InputError:
        return True
    return (other.settings, other.devices, other.notes) != (plain.settings, plain.devices, plain.notes)


@pytest.mark.parametrize(("file", "key"), every())
def test_a_key_that_is_removed_changes_the_answer_or_is_told(file: File, key: str) -> None:
    assert differs(file, {name: value for name, value in file.keys.items() if name != key}) or key in SAME


@pytest.mark.longer
@pytest.mark.parametrize(("file", "key"), every())
def test_a_key_of_another_name_changes_the_answer_or_is_told(file: File, key: str) -> None:
    assert differs(file, {f"{name}_x" if name == key else name: value for name, value in file.keys.items()})


@pytest.mark.parametrize(("file", "key"), every(scripts=True))
def test_values_through_variables_and_other_files_are_the_same_and_out_of_commands_refused(
    file: File, key: str, tmp_path: Path
) -> None:
    value = file.keys[key]
    plain = file.read(file.write(file.keys))
    if value is True:
        (tmp_path / "flag.txt").write_text(file.write({key: True}).split()[-1])
        stands = file.write({**file.keys, key: True}).replace(file.write({key: True}).split()[-1], "$(cat flag.txt)", 1)
        assert file.read(stands, tmp_path).settings == plain.settings
        return
    (tmp_path / "value.txt").write_text(f"{value}\n")
    variable = f"V={value}\n{file.write({**file.keys, key: '${V}'})}"
    assert file.read(variable).settings == plain.settings
    assert file.read(file.write({**file.keys, key: "$(cat value.txt)"}), tmp_path).settings == plain.settings
    assert differs(file, {**file.keys, key: "$(jq .value config.json)"})


@pytest.mark.parametrize("kind", [kind for kind, file in FILES.items() if not file.script and kind != "torchtitan"])
def test_keys_given_twice_are_refused(kind: str) -> None:
    file = FILES[kind]
    if kind in ("deepspeed", "transformers"):
        key = next(iter(file.keys))
        text = file.write(file.keys).replace("{", f'{{"{key}": {file.keys[key]}, ', 1)
    else:
        first = file.write(file.keys).splitlines()[0]
        text = file.write(file.keys) + (f"{first}\n" if not first.endswith(":") else f"{first} {{}}\n")
    with pytest.raises(InputError, match="given twice"):
        file.read(text)


@pytest.mark.longer
def test_keys_of_primus_count() -> None:
    plain = READERS["megatron"].read_launch(PRIMUS, LaunchOptions(nodes=1, devices_per_node=8))
    lines = PRIMUS.splitlines()
    for line in lines[lines.index("    overrides:") + 1 :]:
        name = line.split(":")[0].strip()
        if name in ("stderr_sink_level", "lr_decay_iters", "enable_primus_turbo", "tensor_model_parallel_size"):
            continue
        for changed in (PRIMUS.replace(f"{line}\n", ""), PRIMUS.replace(f"      {name}:", f"      {name}_x:")):
            try:
                other = READERS["megatron"].read_launch(changed, LaunchOptions(nodes=1, devices_per_node=8))
            except InputError:
                continue
            # FSDP2 overlaps by itself, and there is one tensor-parallel rank.
            harmless = name in ("gradient_accumulation_fusion", "sequence_parallel", "max_position_embeddings") or (
                name in ("overlap_grad_reduce", "cross_entropy_loss_fusion")
            )
            assert (other.settings, other.notes) != (plain.settings, plain.notes) or harmless, name
