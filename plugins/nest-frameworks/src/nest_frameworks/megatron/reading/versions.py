"""Flags of older versions, and of forks, in the words of today.

Sources: megatron/arguments.py of Megatron-LM v1.1.5, v2.6 and v3.0, of Megatron-DeepSpeed (also HabanaAI's), and of
Pai-Megatron-Patch; what DeepSpeed's configuration says: https://www.deepspeed.ai/docs/config-json.
"""

import json
from collections.abc import Mapping
from typing import Any

from nest.errors import InputError
from nest_frameworks.megatron.reading.flags import FlagReader
from nest_frameworks.megatron.reading.tokens import UNKNOWN
from nest_frameworks.megatron.reading.walked import Files

RENAMED = {
    "--model-parallel-size": "--tensor-model-parallel-size",
    "--batch-size": "--micro-batch-size",
    "--activations-checkpoint-granularity": "--recompute-granularity",
    "--activations-checkpoint-method": "--recompute-method",
    "--activations-checkpoint-num-layers": "--recompute-num-layers",
    "--checkpoint-num-layers": "--recompute-num-layers",
    "--distribute-checkpointed-activations": "--distribute-saved-activations",
    "--num-key-value-heads": "--num-query-groups",
    "--num-attention-heads-kv": "--num-query-groups",
    "--use-flash-attn-v1": "--use-flash-attn",
    "--use-flash-attn-v2": "--use-flash-attn",
    "--use-flash-attn-triton": "--use-flash-attn",
    "--use-flash-attn-builder": "--use-flash-attn",
    "--use-rms-norm": "--normalization RMSNorm",
    "--glu-activation": "--swiglu",
    "--qk-nope-head-dim": "--qk-head-dim",
    "--qk-rope-head-dim": "--qk-pos-emb-head-dim",
    "--fp8-hybrid": "--fp8-format hybrid",
    "--fp8-e4m3": "--fp8-format e4m3",
    "--use-custom-fsdp": "--use-megatron-fsdp",
    "--intermediate-size": "--ffn-hidden-size",
}
"""Older names of today's flags; a value after the new name is the meaning of the old one."""

OLD = ("--model-parallel-size", "--batch-size", "--activations-checkpoint-method", "--checkpoint-activations",
       "--distribute-checkpointed-activations", "--DDP-impl", "--deepspeed")  # fmt: skip
"""Flags of versions that stored the scores of attention unless --use-flash-attn was given."""

SHARDED: Mapping[int, dict[str, tuple[str, ...]]] = {
    0: {},
    1: {"--use-distributed-optimizer": ()},
    2: {"--use-megatron-fsdp": (), "--data-parallel-sharding-strategy": ("optim_grads",)},
    3: {"--use-megatron-fsdp": (), "--data-parallel-sharding-strategy": ("optim_grads_params",)},
}
"""Flags that shard as much as the ZeRO stages of DeepSpeed."""

WORDS = {
    ("--normalization", "rmsnorm"): "RMSNorm",
    ("--normalization", "layernorm"): "LayerNorm",
    ("--position-embedding-type", "rotary"): "rope",
    ("--position-embedding-type", "absolute"): "learned_absolute",
    ("--position-embedding-type", "alibi"): "none",
}


def translate(flags: FlagReader, files: Files, *, printed: bool = False) -> None:
    """Say in the words of today what `flags` say in those of other versions; mistakes are left with `flags`.

    `files`: those that flags name. `printed`: the flags are out of a log, whose
    DeepSpeed and attention are read already.
    """
    words, old = flags.words, [flag for flag in OLD if flag in flags.words]
    method = "--activations-checkpoint-method" in words
    said = [
        flag for flag in (*RENAMED, "--checkpoint-activations") if flag in words and flag != "--checkpoint-num-layers"
    ]
    if "--use-custom-fsdp" in words and "--use-megatron-fsdp" not in words:
        # Of 0.11 and 0.12, which shard nothing unless told, and add up gradients in fp32.
        words.setdefault("--data-parallel-sharding-strategy", ("no_shard",))
        words.setdefault("--megatron-fsdp-main-grads-dtype", ("bf16" if "--grad-reduce-in-bf16" in words else "fp32",))
    for flag in RENAMED:
        if flag in words:
            new, _, value = RENAMED[flag].partition(" ")
            flags.asked.add(flag)
            words.setdefault(new, (value,) if value else () if new == "--swiglu" else words[flag])
    if "--num-key-value-heads" in words or "--num-attention-heads-kv" in words:
        words.setdefault("--group-query-attention", ())
    if flags.several("--attention-head-type") == ("multiquery",):  # BigCode's.
        words |= {"--group-query-attention": (), "--num-query-groups": ("1",)}
    if (window := flags.integer("--sliding-window")) is not None:  # Of Pai-Megatron-Patch.
        words.setdefault("--window-size", (f"{window - 1},0",))
    if "--checkpoint-activations" in words or method:
        flags.asked.add("--checkpoint-activations")
        words.setdefault("--recompute-granularity", ("full",))
        words.setdefault("--recompute-method", ("uniform",))
    if words.get("--recompute-method") and words.get("--recompute-granularity") == ("full",):
        # The default until None became it, with which Megatron Core refuses to recompute in full.
        words.setdefault("--recompute-num-layers", ("1",))
    elif "--checkpoint-num-layers" in words:
        del words["--recompute-num-layers"]  # Nothing is recomputed for it to count.
    for (flag, word), today in WORDS.items():
        if words.get(flag) == (word,):
            words[flag] = (today,)
            if word == "alibi":
                flags.note("--position-embedding-type alibi is priced as no positions: what it adds to scores is not.")
    if "embedding" in " ".join(flags.several("--pp-partition-method")):
        words |= {"--account-for-embedding-in-pipeline-split": (), "--account-for-loss-in-pipeline-split": ()}
    if said and not printed:
        flags.note(f"{', '.join(sorted(said))} of older versions and forks: read as what they are called today.")
    if printed:
        return
    if flags.has("--deepspeed"):
        _deepspeed(flags, files)
    elif flags.has("--zero-stage"):
        flags.note("--zero-stage without --deepspeed has no effect: ZeRO 0 is priced.")
    _attention(flags, old)


def _attention(flags: FlagReader, old: list[str]) -> None:
    if flags.several("--use-fused-sdpa") not in ((), ("0",)):  # Habana's.
        flags.words.setdefault("--use-flash-attn", ())
    newer = ("--use-flash-attn", "--attention-backend", "--transformer-impl", "--use-mcore-models")
    if old and not any(flag in flags.words for flag in newer):
        flags.words["--attention-backend"] = ("unfused",)
        flags.note(
            f"{old[0]} is of a version that stores the scores of attention unless --use-flash-attn is given: so it is "
            "priced."
        )


def _deepspeed(flags: FlagReader, files: Files) -> None:
    """ZeRO, and what else of DeepSpeed changes the plan."""
    name = " ".join(flags.several("--deepspeed-config"))  # What only a run would tell of it is a folder mostly.
    shown = name.replace(UNKNOWN, "")
    asked = flags.integer("--zero-stage", minimum=0)
    try:
        config = _config(name, shown, files)
    except InputError as error:
        flags.problem(str(error))
        return
    zero = config.get("zero_optimization") if config is not None else None
    zero = zero if isinstance(zero, Mapping) else {}
    stage = zero.get("stage", 0) if config is not None else asked
    if stage is None:
        flags.problem(
            f"--deepspeed-config {shown}: this file is not to be found here, and says the stage of ZeRO; put it "
            "where the script says, relative to the script, or add --zero-stage."
        )
        return
    if stage not in SHARDED:
        flags.problem(f"ZeRO has no stage {stage!r:.40}; it has 0, 1, 2 and 3.")
        return
    where = (
        f"{shown} says" if config is not None else "--zero-stage says, as the file of --deepspeed-config is not here"
    )
    if not stage and flags.has("--bf16"):
        stage = 1
        flags.note(f"ZeRO 0, as {where}, is priced as 1: DeepSpeed's optimizer for bf16 shards its state by itself.")
    else:
        flags.note(f"ZeRO {stage}, as {where}.")
    flags.words.update(SHARDED[stage])
    for key in ("curriculum_learning", "data_efficiency"):
        if config is not None and isinstance(config.get(key), Mapping) and config[key].get("enabled"):
            flags.note(f"{key} of {shown} is not priced: nest assumes every step to have whole sequences.")
    _offloads(flags, zero)
    if (flags.integer("--ds-sequence-parallel-size") or 1) > 1:
        flags.problem("--ds-sequence-parallel-size above 1, DeepSpeed's Ulysses, is not priced from flags.")
    if any(count != "1" for count in flags.several("--num-experts")):
        flags.problem("--num-experts of Megatron-DeepSpeed, whose experts are not laid out as Megatron Core's, is not "
                      "priced.")  # fmt: skip
    flags.words.pop("--num-experts", None)
    for flag in ("--topk", "--mlp-type", "--expert-interval", "--moe-expert-parallel-size"):
        flags.has(flag)  # Of experts, which there are none of.


def _offloads(flags: FlagReader, zero: Mapping[str, Any]) -> None:
    target = zero.get("offload_optimizer")
    if flags.has("--cpu-optimizer") or (isinstance(target, Mapping) and target.get("device") == "cpu"):
        flags.words |= {"--optimizer-cpu-offload": (), "--use-precision-aware-optimizer": ()}
    target = zero.get("offload_param")
    if isinstance(target, Mapping) and target.get("device") in ("cpu", "nvme"):
        flags.problem("offload_param of DeepSpeed's configuration is not priced: weights stay on the device in nest.")


def _config(name: str, shown: str, files: Files) -> Mapping[str, Any] | None:
    """DeepSpeed's configuration; None: it is not here.

    Raises:
        InputError: it is no JSON.
    """
    text = files.text(name)
    if text is None:
        return None
    try:
        content = json.loads(text)
    except ValueError as error:
        raise InputError(f"--deepspeed-config {shown}: this is no JSON: {error}.") from None
    return content if isinstance(content, Mapping) else {}
