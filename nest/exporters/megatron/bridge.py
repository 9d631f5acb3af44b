"""The exporter of Megatron-Bridge, whose recipes configure Megatron Core.

Fields: `ConfigContainer` (src/megatron/bridge/training/config.py), `CommOverlapConfig` (training/comm_overlap.py) and
the named precisions of training/mixed_precision.py of NVIDIA-NeMo/Megatron-Bridge 067f987d (after 0.6.0), and
TransformerConfig of Megatron Core, whose names it takes. A recipe brings the model; the overlay says how it runs, and
sets back what the recipe may have decided otherwise.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import evolve

from nest.deployment import Deployment, Limits
from nest.errors import InputError
from nest.exporters.common import problem_of, samples
from nest.exporters.megatron import flags as megatron
from nest.exporters.megatron.flags import flag_groups, transformer_of
from nest.exporters.megatron.model_flags import feed_forwards
from nest.exporters.megatron.notation import FLAG, Flags, given_flags
from nest.exporters.megatron.parallel_flags import CONTEXT_EXCHANGES, environment
from nest.exporters.megatron.training_flags import eight_bit_weights
from nest.hooks.pipelines import deployed
from nest.spec import Architecture, Lora, PlanDocument, Problem, Training
from nest.spec.architecture import LatentAttention
from nest.spec.training import ALL_LINEAR

PRECISIONS = {
    "fp32": None,
    "fp16": "fp16_mixed",
    "bf16": "bf16_mixed",
    "fp8": "bf16_with_fp8_delayed_scaling_mixed",
    "mxfp8": "bf16_with_mxfp8_mixed",
    "nvfp4": "bf16_with_nvfp4_mixed",
}
"""Names that `mixed_precision` takes; None: there is none, and none is needed."""

OVERLAP = "megatron.bridge.training.comm_overlap.CommOverlapConfig"

ADAPTERS, FUSED_ADAPTERS = "megatron.bridge.peft.canonical_lora.CanonicalLoRA", "megatron.bridge.peft.lora.LoRA"

MODULES = {
    "q_proj": "linear_q",
    "k_proj": "linear_k",
    "v_proj": "linear_v",
    "o_proj": "linear_proj",
    "gate_proj": "linear_fc1_gate",
    "up_proj": "linear_fc1_up",
    "down_proj": "linear_fc2",
}
"""What `CanonicalLoRA` calls `training.trainable.lora.targets` (src/megatron/bridge/peft/canonical_lora.py)."""

FUSED_MODULES = {
    "qkv_proj": "linear_qkv",
    "o_proj": "linear_proj",
    "gate_up_proj": "linear_fc1",
    "down_proj": "linear_fc2",
}
"""What `LoRA` calls them, which has one adapter for each module of Megatron Core (src/megatron/bridge/peft/lora.py)."""

FUSED = ({"q_proj", "k_proj", "v_proj"}, {"gate_proj", "up_proj"})
"""Targets that are one module of Megatron Core: it runs the adapters of all or of none."""

Section = dict[str, Any]


def limits(problem: Problem) -> Limits:
    """What Megatron-Bridge can run of `problem`: what Megatron-LM can, with its named precisions.

    Raises:
        InputError: the model or the training is beyond it.
    """
    for obstacle in (*_obstacles(problem.training), *_adapter_obstacles(problem)):
        raise InputError(f"Megatron-Bridge cannot train this, because {obstacle}.")
    return evolve(megatron.limits(problem), trainable=True)


def export(plan: PlanDocument) -> Mapping[str, str]:
    """`megatron_bridge.yaml`.

    Raises:
        InputError: Megatron-Bridge cannot run the plan; the text has the reasons.
    """
    problem = problem_of(plan)
    limits(problem)
    groups = flag_groups(plan, trainable=True)
    flags: Flags = {flag: value for group in groups.values() for flag, value in given_flags(group).items()}
    shape = deployed(plan)
    sections = _sections(flags, shape, problem.training)
    return {"megatron_bridge.yaml": _text(sections, shape, transformer_of(problem))}


def _obstacles(training: Training) -> Iterator[str]:
    if training.gradients is not None and training.precision != "fp32":
        yield "its named precisions say what gradients are reduced in; leave training.gradients out"
    if training.precision in ("fp8", "mxfp8") and not eight_bit_weights(training):
        yield f"its precision {PRECISIONS[training.precision]} keeps weights in 8 bits; leave primary_weights out"


def _adapter_obstacles(problem: Problem) -> Iterator[str]:
    trained, model = problem.training.trained, transformer_of(problem)
    if trained is None:
        return
    if trained.lora is None or trained.layers:
        yield "it freezes all but adapters (training.trainable)"
        return
    if feed_forwards(model)[1] or any(isinstance(each.attention, LatentAttention) for each in model.blocks):
        yield "its adapters of experts and of latent attention are not those that nest prices"
        return
    targets = _targets(trained.lora)
    for fused in FUSED:
        if 0 < len(fused & targets) < len(fused):
            yield f"its adapters beside {', '.join(sorted(fused))} come together (training.trainable.lora.targets)"
    unknown = sorted(targets - set(MODULES))
    if unknown and not targets <= set(FUSED_MODULES):
        yield f"it has no adapter beside {unknown[0]} (training.trainable.lora.targets)"
    if targets & {"gate_proj", "up_proj"} and not feed_forwards(model)[0][0].gated:
        yield "its adapters beside gate_proj and up_proj take a gated network"


def _targets(lora: Lora) -> set[str]:
    return {*MODULES} if ALL_LINEAR in lora.targets else {*lora.targets}


def _adapters(training: Training) -> Section | None:
    """The scale of adapters (`alpha`) changes neither time nor memory, and is the recipe's."""
    if training.trained is None or training.trained.lora is None:
        return None
    targets = _targets(training.trained.lora)
    fused = targets <= set(FUSED_MODULES)
    names = FUSED_MODULES if fused else MODULES
    modules = [module for target, module in names.items() if target in targets]
    return {
        "_target_": FUSED_ADAPTERS if fused else ADAPTERS,
        "target_modules": modules,
        "dim": training.trained.lora.rank,
        "dropout": 0.0,
    }


def _sections(flags: Flags, shape: Deployment, training: Training) -> dict[str, Section | str | None]:
    """The overlay: sections of the configuration, and what each sets."""
    distributed = bool(flags.get("--use-distributed-optimizer"))
    return {
        "model": _model(flags, shape, training),
        "train": {"micro_batch_size": samples(shape), "global_batch_size": shape.global_batch},
        "dataset": {"seq_length": training.sequence_length},
        "mixed_precision": PRECISIONS[training.precision],
        "optimizer": _optimizer(flags, distributed),
        "ddp": {
            "use_distributed_optimizer": distributed,
            "num_distributed_optimizer_instances": flags.get("--num-distributed-optimizer-instances", 1),
            "overlap_grad_reduce": bool(training.overlap.data),
            "overlap_param_gather": bool(training.overlap.data) and distributed,
            "use_megatron_fsdp": bool(flags.get("--use-megatron-fsdp")),
            "data_parallel_sharding_strategy": flags.get("--data-parallel-sharding-strategy", "no_shard"),
        },
        "comm_overlap": {
            "_target_": OVERLAP,
            "tp_comm_overlap": bool(flags.get("--tp-comm-overlap")),
            "overlap_grad_reduce": bool(training.overlap.data),
            "overlap_param_gather": bool(training.overlap.data) and distributed,
            "overlap_moe_expert_parallel_comm": bool(flags.get("--overlap-moe-expert-parallel-comm")),
        },
        "dist": {
            "use_megatron_fsdp": bool(flags.get("--use-megatron-fsdp")),
            "use_tp_pp_dp_mapping": bool(flags.get("--use-tp-pp-dp-mapping")),
        },
        "peft": _adapters(training),
        **({"checkpoint": {"ckpt_format": "fsdp_dtensor"}} if flags.get("--use-megatron-fsdp") else {}),
    }


def _model(flags: Flags, shape: Deployment, training: Training) -> Section:
    modules = flags.get("--recompute-modules")
    section: Section = {
        "seq_length": training.sequence_length,
        "tensor_model_parallel_size": shape.tp,
        "sequence_parallel": shape.sequence_parallel,
        "context_parallel_size": shape.cp,
        "cp_comm_type": CONTEXT_EXCHANGES[training.key_exchange],
        "pipeline_model_parallel_size": shape.stages,
        "virtual_pipeline_model_parallel_size": shape.chunks if shape.chunks > 1 else None,
        "pipeline_model_parallel_layout": flags.get(FLAG),
        "mtp_num_layers": flags.get("--mtp-num-layers"),
        "num_layers_in_first_pipeline_stage": None,
        "num_layers_in_last_pipeline_stage": None,
        "account_for_embedding_in_pipeline_split": False,
        "account_for_loss_in_pipeline_split": False,
        "recompute_granularity": flags.get("--recompute-granularity"),
        "recompute_method": flags.get("--recompute-method"),
        "recompute_num_layers": flags.get("--recompute-num-layers"),
        "recompute_modules": list(modules) if isinstance(modules, tuple) else None,
    }
    if "--num-experts" in flags:
        section |= {
            "expert_model_parallel_size": shape.ep,
            "expert_tensor_parallel_size": shape.etp,
            "moe_token_dispatcher_type": flags["--moe-token-dispatcher-type"],
            "moe_flex_dispatcher_backend": flags.get("--moe-flex-dispatcher-backend"),
            "moe_expert_capacity_factor": flags.get("--moe-expert-capacity-factor"),
            "moe_pad_expert_input_to_capacity": bool(flags.get("--moe-pad-expert-input-to-capacity")),
        }
    return section


DTYPES = {"bf16": "torch.bfloat16", "fp8": "torch.uint8", "fp32": "torch.float32"}


def _optimizer(flags: Flags, distributed: bool) -> Section:
    section: Section = {"optimizer": flags["--optimizer"], "use_distributed_optimizer": distributed}
    if flags.get("--use-precision-aware-optimizer"):
        section["use_precision_aware_optimizer"] = True
        section["exp_avg_dtype"] = DTYPES[str(flags.get("--exp-avg-dtype", "fp32"))]
        section["exp_avg_sq_dtype"] = DTYPES[str(flags.get("--exp-avg-sq-dtype", "fp32"))]
    if flags.get("--optimizer-cpu-offload"):
        section |= {"optimizer_cpu_offload": True, "optimizer_offload_fraction": 1.0}
    return section


def _text(sections: Mapping[str, Section | str | None], shape: Deployment, model: Architecture) -> str:
    """YAML, whose words are written as JSON writes them."""
    exported, unset = environment(shape)
    lines = [
        "# Written by nest for Megatron-Bridge; an overlay for a recipe, which brings the model.",
        f"# The plan is for {len(model.blocks)} layers of width {model.hidden} on {shape.world_size} ranks.",
        *(f"# Set {name}={value} in the environment." for name, value in exported.items()),
        *(f"# Leave {name} unset." for name in unset),
    ]
    for name, section in sections.items():
        if isinstance(section, dict):
            lines += [f"{name}:", *(f"  {key}: {json.dumps(value)}" for key, value in section.items())]
        else:
            lines.append(f"{name}: {json.dumps(section)}")
    return "\n".join(lines) + "\n"
