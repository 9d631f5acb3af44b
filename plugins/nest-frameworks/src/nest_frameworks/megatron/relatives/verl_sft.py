"""verl's fine-tuning: commands that run `verl.trainer.fsdp_sft_trainer` under torchrun.

Keys and defaults: volcengine/verl b178a3cd, verl/trainer/config/sft_trainer.yaml and verl/trainer/fsdp_sft_trainer.py
(`train_batch_size` counts all ranks; FSDP computes in bf16, and reduces in fp32).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import evolve

from nest.deployment import LaunchOptions, Reading
from nest.spec.training import ALL_LINEAR
from nest_frameworks.megatron.notation import Flags
from nest_frameworks.megatron.relatives.verl import DIALECT, OFFLOADED, ULYSSES

if TYPE_CHECKING:
    from nest_frameworks.keys import Keys

PROGRAM = "fsdp_sft_trainer"

HARMLESS = """
data.* trainer.* optim.* use_remove_padding model.lora_alpha model.use_shm model.trust_remote_code model.external_lib
model.fsdp_config.wrap_policy.* model.strategy
"""

FINE_TUNING = evolve(
    DIALECT,
    rows={},
    read_only={},
    defaults={"--bf16": True, "--attention-backend": "flash", "--optimizer": "adam", "--use-torch-fsdp2": True},
    refused={f"model.fsdp_config.{key}": OFFLOADED for key in ("cpu_offload", "offload_params")},
    assumed={"model.use_liger": "nest assumes operators to take what calibration says"},
    harmless=tuple(HARMLESS.split()),
    aliases={
        "--seq-length": "data.max_length",
        "--global-batch-size": "data.train_batch_size",
        "--context-parallel-size": ULYSSES,
    },
)


def read(text: str, options: LaunchOptions) -> Reading:
    """Read a script that runs the trainer.

    Raises:
        InputErrors: keys contradict each other, or say what nest cannot price.
        InputError: there is no such command, or nothing says how many ranks it has.
    """
    from nest_frameworks.keys import Keys
    from nest_frameworks.megatron.reading.ranks import count_ranks
    from nest_frameworks.megatron.relatives.commands import command, overrides
    from nest_frameworks.megatron.relatives.core import trained
    from nest_frameworks.trainers.models import with_model

    words, script, notes = command(text, options, lambda each: _place(each) is not None, f"call of verl's {PROGRAM}")
    place = _place(words) or 0
    ranks = count_ranks(words[:place], script.texts, options, script.files)
    keys = Keys(overrides(words[place + 1 :]), notes=[ranks.said, *notes], ranks_per_node=ranks.per_node)
    lora = None
    if keys.integer("model.lora_rank", 0):
        lora = trained(keys, "model.lora_rank", "model.target_modules", (ALL_LINEAR,))
    name, known = with_model(keys, "model.partial_pretrain", options)
    narrow = keys.choice("model.fsdp_config.model_dtype", {"fp32": False, "bf16": True, "bfloat16": True}, False)
    found = FINE_TUNING.read(keys, ranks.count, _flags(keys, ranks.count), known or options.model)
    training = {**found.settings["training"], "stack": "fsdp", **({"trainable": lora} if lora else {})}
    training |= {"master_weights": False, "optimizer": "adam-bf16"} if narrow else {}
    settings = {**found.settings, "training": training, **({"model": name} if name is not None else {})}
    return evolve(found, settings=settings)


def _flags(keys: Keys, devices: int) -> Flags:
    recomputes, ulysses = keys.truth("model.enable_gradient_checkpointing", True), keys.integer(ULYSSES) or 1
    micro, shared = keys.integer("data.micro_batch_size_per_gpu"), keys.integer("data.micro_batch_size")
    if micro is None and shared is not None:  # Older releases' name: samples of all data-parallel ranks.
        micro, left = divmod(shared, ranks := max(devices // ulysses, 1))
        if left:
            keys.problem(f"data.micro_batch_size {shared} is no multiple of the {ranks} data-parallel ranks.")
    full: Flags = {"granularity": "full", "method": "uniform", "num-layers": 1}
    return {
        "--global-batch-size": keys.integer("data.train_batch_size") or 256,
        "--micro-batch-size": micro or 4,
        "--optimizer": keys.choice("optim.optimizer", {"adamw": "adam", "adam": "adam"}, "adam"),
        "--seq-length": keys.integer("data.max_length") or 1024,
        "--context-parallel-size": ulysses,
        "--cp-comm-type": "a2a" if ulysses > 1 else None,
        **{f"--recompute-{name}": value for name, value in full.items() if recomputes},
    }


def _place(words: Sequence[str]) -> int | None:
    """Index of the word that names the trainer; None: none."""
    return next((at for at, word in enumerate(words) if word.removesuffix(".py").endswith(PROGRAM)), None)
