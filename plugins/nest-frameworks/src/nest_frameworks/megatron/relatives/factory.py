"""LLaMA-Factory's Megatron back ends (`USE_MCA`, `USE_MEGATRON_BRIDGE`): its YAML with arguments of Megatron Core.

Arguments and defaults: alibaba/ROLL, mcore_adapter/src/mcore_adapter/training_args.py, and trainer/trainer.py there;
hiyouga/LLaMA-Factory ff6d4d12, src/llamafactory/hparams/megatron_bridge_args.py, train/megatron_bridge and
examples/megatron. A step has per_device_train_batch_size x gradient_accumulation_steps samples of each rank.
"""

from collections.abc import Mapping
from math import prod

from attrs import evolve

from nest.deployment import LaunchOptions, Reading
from nest_frameworks.keys import Keys, launched
from nest_frameworks.limits.relatives import FUSED_MODULES
from nest_frameworks.megatron.notation import Flags
from nest_frameworks.megatron.relatives.core import trained
from nest_frameworks.megatron.relatives.swift import DIALECT
from nest_frameworks.trainers.models import with_model
from nest_frameworks.trainers.names import LLAMA_FACTORY, STEPS

DEGREES = tuple(f"{name}_parallel_size" for name in ("tensor_model", "pipeline_model", "context"))
SPOKEN = (*DEGREES, "expert_model_parallel_size", "virtual_pipeline_model_parallel_size", "recompute_granularity")
"""Keys that only this back end has."""

TARGETS = "lora_target"
FREE = ("variable_seq_lengths", "distrib_*", "moe_grouped_gemm", "stage", "finetuning_type")
BRIDGED = ("mixed_precision", "use_packed_sequences", "export_hf_on_finish", "megatron_pretrained_checkpoint")
"""Keys of the back end with Megatron Bridge; without one it is mcore_adapter."""

ADAPTER = evolve(
    DIALECT,
    name="LLaMA-Factory's Megatron back end",
    defaults={
        "--grad-reduce-in-bf16": True,
        "--expert-tensor-parallel-size": "1",
        "--moe-token-dispatcher-type": "allgather",
    },
    refused=dict.fromkeys(("additional_configs", "extra_config"), "nest reads the arguments of the file alone"),
    harmless=(*DIALECT.harmless, *LLAMA_FACTORY.patterns(), *FREE, *BRIDGED),
    aliases={"--seq-length": "cutoff_len", "--global-batch-size": STEPS, "--micro-batch-size": LLAMA_FACTORY.micro[0]},
)

BRIDGE = evolve(
    ADAPTER,
    defaults=dict.fromkeys(("--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather"), True),
)


def asks_for(content: Mapping[str, object]) -> bool:
    """Return whether a file is for this back end."""
    return any(content.get(key) is not None for key in SPOKEN)


def read(content: Mapping[str, object], options: LaunchOptions) -> Reading:
    """Read the keys of a file.

    Raises:
        InputErrors: keys contradict each other, or say what nest cannot price.
    """
    keys = Keys(content)
    bridged = any(key in content for key in BRIDGED)
    kinds, kind = ("full", "lora") if bridged else ("full",), keys.value("finetuning_type")
    if keys.value("stage") not in ("pt", "sft") or kind not in kinds:
        keys.problem(f"stage must be pt or sft, and finetuning_type {' or '.join(kinds)}, for this back end.")
    lora = trained(keys, "lora_rank", TARGETS, tuple(FUSED_MODULES.values()), 8) if kind == "lora" else None
    if keys.value(TARGETS) not in (None, "all"):
        keys.problem(f"{TARGETS} is {keys.value(TARGETS)!s:.60}; this back end takes all.")
    if bridged and not str(keys.value("mixed_precision") or "bf16").startswith("bf16"):
        keys.problem(f"mixed_precision is {keys.value('mixed_precision')!s:.60}, and nest reads bf16_mixed.")
    asked = evolve(options, part=None)
    if asked.nodes is None:
        keys.note("nest assumes it to be launched on one machine; --nodes says.")
        asked = evolve(asked, nodes=1)
    devices = launched(keys, asked)
    micro, steps = keys.integer(LLAMA_FACTORY.micro[0]) or LLAMA_FACTORY.micro[1], keys.integer(STEPS) or 1
    # The builder of configurations for Megatron Bridge divides the batch by the expert-parallel ranks as well.
    degrees = (*DEGREES, "expert_model_parallel_size") if bridged else DEGREES
    ranks = max((devices or 1) // prod(keys.integer(key) or 1 for key in degrees), 1)
    half = [key for key in ("bf16", "fp16") if keys.truth(key)]
    flags: Flags = {
        "--micro-batch-size": str(micro),
        "--global-batch-size": str(micro * steps * ranks),
        "--seq-length": str(keys.integer("cutoff_len") or 2048),
        **{f"--{key}": True for key in half},
    }
    if bridged or "bf16" not in half or keys.truth("accumulate_allreduce_grads_in_fp32"):
        flags["--grad-reduce-in-bf16"] = None
    if keys.value("recompute_granularity") == "full" and keys.value("recompute_method") is None:
        flags |= {"--recompute-method": "uniform", "--recompute-num-layers": "1"}
    name, known = with_model(keys, LLAMA_FACTORY.model, options)
    found = (BRIDGE if bridged else ADAPTER).read(keys, devices, flags, known or options.model)
    training = {**found.settings["training"], **({"trainable": lora} if lora else {})}
    model = {"model": name} if name is not None else {}
    return evolve(found, settings={**found.settings, "training": training, **model})
