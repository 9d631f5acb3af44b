"""The arguments that Megatron-LM prints when it starts (`_print_args` in megatron/training/arguments.py)."""

import re
from collections.abc import Iterable, Iterator, Mapping

from nest.units import whole_number
from nest_frameworks.megatron.notation import COSTLY

HEAD = re.compile(r"-{6} arguments -{6,}\s*$", re.MULTILINE)
FOOT = re.compile(r"-{6} end of arguments -{6,}\s*$", re.MULTILINE)
_ARGUMENT = re.compile(r"\b(?P<name>\w+) \.+ (?P<value>[^\n]*)")
_PADDED = re.compile(r"> padded vocab \(size: \d+\) with \d+ dummy tokens \(new size: (\d+)\)")

NAMES = {
    "model_parallel_size": "tensor_model_parallel_size",
    "batch_size": "micro_batch_size",
    "fp8": "fp8_format",
    "fp4": "fp4_format",
}
"""Arguments that are printed by another name than that of their flag: those of 2020, and formats."""

SHARDED = {
    "1": ("--use-distributed-optimizer",),
    "2": ("--use-megatron-fsdp", "--data-parallel-sharding-strategy", "optim_grads"),
    "3": ("--use-megatron-fsdp", "--data-parallel-sharding-strategy", "optim_grads_params"),
}
"""Flags that shard as much as the ZeRO stages of DeepSpeed."""

NEGATIVE = {
    "add_bias_linear": "--disable-bias-linear",
    "overlap_p2p_comm": "--no-overlap-p2p-communication",
}
"""Arguments that a flag switches off."""

DERIVED = {
    "encoder_seq_length",
    "data_parallel_size",
    "world_size",
    "rank",
    "padded_vocab_size",
    "params_dtype",
    "consumed_train_samples",
    "zero_stage",
}
"""Arguments that are no flags: they follow from others."""

UNLESS = {
    "num_query_groups": "group_query_attention",
    "expert_model_parallel_size": "num_experts",
    "expert_tensor_parallel_size": "num_experts",
    **dict.fromkeys(("data_parallel_sharding_strategy", "megatron_fsdp_main_grads_dtype"), "use_megatron_fsdp"),
    "megatron_fsdp_grad_comm_dtype": "use_megatron_fsdp",
    "num_distributed_optimizer_instances": "use_distributed_optimizer",
    **dict.fromkeys(("kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim"), "multi_latent_attention"),
    **dict.fromkeys(("recompute_modules", "recompute_method", "recompute_num_layers"), "recompute_granularity"),
}
"""Arguments that have a value and no effect where another is not given."""


def printed(text: str) -> tuple[tuple[str, ...], int | None] | None:
    """The arguments in a log and the number of devices; None where it has none."""
    head = HEAD.search(text)
    if head is None:
        return None
    foot = FOOT.search(text, head.end())
    rows = _ARGUMENT.finditer(text, head.end(), foot.start() if foot else len(text))
    values = {NAMES.get(row["name"], row["name"]): row["value"].rstrip() for row in rows}
    padded = _PADDED.search(text)
    if padded and not _given(values, "padded_vocab_size"):
        values["padded_vocab_size"] = padded.group(1)
    return tuple(_words(values)), whole_number(values.get("world_size", ""))


def _given(values: Mapping[str, str], name: str) -> bool:
    return values.get(name, "None") not in ("None", "False", "")


def _words(values: Mapping[str, str]) -> Iterator[str]:
    """Flags and their values. What has no effect is left out."""
    for name, value in values.items():
        if name in NEGATIVE:
            if value == "False":
                yield NEGATIVE[name]
            continue
        if not _given(values, name) or name in DERIVED or _idle(values, name):
            continue
        yield f"--{name.replace('_', '-')}"
        if value != "True":
            yield from [value] if name.endswith("_freq") else _value(value)
    yield from _later(values)


def _idle(values: Mapping[str, str], name: str) -> bool:
    """Return whether an argument has a value that changes nothing."""
    needed = UNLESS.get(name, "num_experts" if name.startswith("moe_") else None)
    costs_nothing = f"--{name.replace('_', '-')}" in COSTLY and values[name] in ("0", "none", "0.0")
    virtual = name.startswith("num_virtual_stages") and _given(values, "num_layers_per_virtual_pipeline_stage")
    return (needed is not None and not _given(values, needed)) or costs_nothing or virtual


def _value(text: str) -> Iterable[str]:
    """A value in the form of a command line."""
    listed = re.fullmatch(r"\[(.*)\]", text)
    if listed:
        return [each.strip(" '\"") for each in listed.group(1).split(",") if each.strip()]
    # Types of PyTorch and enumerations are printed as such.
    words = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.uint8": "fp8"}
    return [words.get(text, re.sub(r"^[A-Z]\w+\.", "", text))]


def _later(values: Mapping[str, str]) -> Iterator[str]:
    """Yield differences of printed arguments from today's flags."""
    if _given(values, "padded_vocab_size"):
        yield from ("--padded-vocab-size", values["padded_vocab_size"])
    chunks = values.get("virtual_pipeline_model_parallel_size", "None")
    keys = ("num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank")
    if chunks.isdecimal() and not any(_given(values, each) for each in keys):
        yield from ("--num-virtual-stages-per-pipeline-rank", chunks)
    if "attention_backend" not in values and values.get("transformer_impl") != "transformer_engine":
        # Before there was a choice, scores were stored unless --use-flash-attn was given.
        yield from () if _given(values, "use_flash_attn") else ("--attention-backend", "unfused")
    if _given(values, "deepspeed"):
        yield from SHARDED.get(values.get("zero_stage", ""), ())
    if _given(values, "checkpoint_activations"):  # Until 2022, of every layer.
        yield from ("--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1")
