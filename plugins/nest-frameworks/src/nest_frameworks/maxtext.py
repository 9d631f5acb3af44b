"""MaxText: what `python -m maxtext.trainers.pre_train.train base.yml KEY=VALUE ...` is told.

Keys and their meaning: src/maxtext/configs/base.yml and types.py of github.com/AI-Hypercomputer/maxtext, commit
e591f30; what each mesh axis divides: `logical_axis_rules` of base.yml.
"""

import shlex
from collections.abc import Mapping
from math import inf, nextafter
from typing import Any

from nest.deployment import Deployment
from nest.errors import InputError
from nest.hooks.architectures import architecture
from nest.spec import Architecture, PlanDocument, Problem
from nest.spec.architecture import GroupedQueryAttention
from nest_frameworks.common import checked, problem_of, shard_ranks
from nest_frameworks.limits import (
    Asked,
    meshes,
    mixture,
)
from nest_frameworks.limits.meshes import decoder_block

SCRIPT_FILE = "maxtext.sh"

AXES = ("data", "fsdp", "pipeline", "context", "tensor", "tensor_sequence", "expert")
"""The mesh axes of `{ici,dcn}_*_parallelism` that plans use."""

REMAT = {"none": "minimal_with_context", "full": "full"}
"""`remat_policy` by recompute mode. MaxText always wraps blocks in `jax.checkpoint` (layers/decoders.py,
`set_remat_policy`): the least it recomputes is what its code calls "save all", everything but products and attention;
its `none` saves nothing."""

OPTIMIZERS = {"adam": "adamw", "adamw": "adamw", "sgd": "sgd"}
"""`opt_type` by the catalogue's names: MaxText's Adam decays weights as AdamW does (optimizers/optimizers.py)."""


def export(plan: PlanDocument) -> Mapping[str, str]:
    """`maxtext.sh`.

    Raises:
        InputError: MaxText cannot run the plan, and why.
    """
    problem = problem_of(plan)
    shape = checked(plan, meshes.maxtext(Asked.of(problem)), "MaxText")
    axes = _axes(shape)
    slices = _sliced(plan, shape, axes)
    settings = _settings(shape, problem) | _mesh(axes, slices) | _model(architecture(plan))
    lines = [f"  {shlex.quote(f'{key}={_written(value)}')}" for key, value in settings.items()]
    notes = [f"# {line}" for line in _notes(architecture(plan), shape)]
    return {SCRIPT_FILE: "\n".join(["#!/usr/bin/env bash", *notes, "MAXTEXT_SETTINGS=(", *lines, ")"]) + "\n"}


def _axes(shape: Deployment) -> dict[str, int]:
    """Degrees of the mesh axes; `expert` ranks are data-parallel ones, `fsdp` the others that shard parameters."""
    within = shard_ranks(shape, "MaxText") if shape.zero[0] == 3 else 1
    tensor = "tensor_sequence" if shape.sequence_parallel else "tensor"
    degrees = dict.fromkeys(AXES, 1) | {"pipeline": shape.stages, "context": shape.cp, "expert": shape.ep}
    degrees[tensor] = shape.tp
    degrees["fsdp"] = max(within // shape.ep, 1)
    degrees["data"] = shape.data_parallel // (degrees["fsdp"] * shape.ep)
    return degrees


def _sliced(plan: PlanDocument, shape: Deployment, axes: Mapping[str, int]) -> dict[str, int]:
    """Part of each axis inside a slice, as the plan lays it, the innermost axis first.

    A slice has the devices that the fastest links connect, those of a hierarchy's innermost level; a network given by
    its links, such as a torus of TPUs, is one.

    Raises:
        InputError: no axis ends where a slice does.
    """
    slice_size = next(iter(Asked.of(problem_of(plan)).fanouts), int(plan.summary["devices"]))
    replicas = ["fsdp", "data"]
    outer = ["pipeline", *replicas] if shape.rank_order == "pp-inner" else [*replicas, "pipeline"]
    inside, room = dict.fromkeys(AXES, 1), slice_size
    for axis in ["tensor", "tensor_sequence", "context", "expert", *outer]:
        inside[axis] = min(axes[axis], room)
        if axes[axis] % inside[axis] or room % inside[axis]:
            raise InputError(
                f"a slice of {slice_size} devices ends inside the {axes[axis]} ranks of MaxText's axis {axis!r}, which "
                "must be split evenly."
            )
        room //= inside[axis]
    return inside


def _mesh(axes: Mapping[str, int], inside: Mapping[str, int]) -> dict[str, Any]:
    within = {f"ici_{axis}_parallelism": inside[axis] for axis in AXES}
    return within | {f"dcn_{axis}_parallelism": axes[axis] // inside[axis] for axis in AXES}


def _settings(shape: Deployment, problem: Problem) -> dict[str, Any]:
    """A step's samples are `per_device_batch_size * devices * gradient_accumulation_steps` (types.py).

    With a pipeline its micro-batches are the plan's, and nothing is accumulated.
    """
    training = problem.training
    steps = shape.micro_batches if shape.stages == 1 else 1
    settings: dict[str, Any] = {
        "per_device_batch_size": _per_device(shape.global_batch // steps, shape.world_size),
        "gradient_accumulation_steps": steps,
        "max_target_length": shape.sequence_length,
        "opt_type": OPTIMIZERS[training.optimizer],
        "dtype": "bfloat16" if training.precision == "bf16" else "float32",
        "remat_policy": REMAT[shape.recompute[0]],
        "shard_optimizer_over_data": shape.zero[0] == 1,
    }
    if shape.stages > 1:
        settings |= {
            "num_pipeline_microbatches": shape.micro_batches,
            "num_layers_per_pipeline_stage": shape.blocks // shape.stages,
            "num_pipeline_repeats": 1,
            "scan_layers": False,
        }
    if shape.cp > 1:
        settings["context_parallel_strategy"] = training.key_exchange
    if training.gradients is not None:
        settings["grad_dtype"] = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}[training.gradients]
    return {key: value for key, value in settings.items() if value is not None}


def _per_device(batch: int, devices: int) -> float:
    """Samples per device, such that MaxText's `int(devices * value)` is `batch` again whatever the rounding."""
    value = batch / devices
    while int(devices * value) < batch:
        value = nextafter(value, inf)
    return value


def _model(model: Architecture | None) -> dict[str, Any]:
    """Widths by MaxText's names, of models built like its decoder blocks `llama2`, `qwen3` and `mixtral`."""
    block = decoder_block(model)
    if model is None or block is None:
        return {}
    attention, experts = model.blocks[0].attention, mixture(model)
    assert isinstance(attention, GroupedQueryAttention)
    width = model.blocks[0].feed_forward.width
    settings: dict[str, Any] = {
        "decoder_block": block,
        "base_emb_dim": model.hidden,
        "base_num_decoder_layers": len(model.blocks),
        "base_num_query_heads": attention.heads,
        "base_num_kv_heads": attention.kv_heads,
        "head_dim": attention.head,
        "base_mlp_dim": width,
        "vocab_size": model.vocab,
        "logits_via_embedding": model.tied,
        "use_qk_norm": attention.normalised,
    }
    if experts is not None:
        settings |= {"base_moe_mlp_dim": width, "num_experts": experts.experts, "num_experts_per_tok": experts.top_k}
    return settings


def _notes(model: Architecture | None, shape: Deployment) -> list[str]:
    lines = [
        'python -m maxtext.trainers.pre_train.train maxtext/configs/base.yml run_name=NAME "${MAXTEXT_SETTINGS[@]}"',
    ]
    lines.append("Rotary positions, norms and routing are those of base.yml or model_name: they are yours to check.")
    if decoder_block(model) is None:
        lines.append("MaxText has no decoder block that is built like the plan's model: set model_name yourself.")
    if shape.recompute[0] == "none":
        lines.append("MaxText runs norms and activations again in any case: minimal_with_context is the least it has.")
    if shape.stages > 1:
        lines.append("MaxText computes embedding and head on all stages, beside the pipeline.")
    return lines


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
