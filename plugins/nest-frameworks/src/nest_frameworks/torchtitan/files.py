"""A plan for torchtitan: TOML for 0.2.2, the last version that reads it, and Python for 0.3.0, which reads no TOML."""

from collections.abc import Mapping, Sequence
from typing import Any

from nest.deployment import Deployment
from nest.deployment.pytorch_schedules import CLASSES
from nest.io import toml_text
from nest.spec import Architecture
from nest_frameworks.common import samples, shard_ranks
from nest_frameworks.limits import Asked
from nest_frameworks.pipeline_actions import SCHEDULE_FILE
from nest_frameworks.torchtitan.models import (
    NEW,
    OLD,
    RECIPES,
    Flavor,
    family,
    flavor,
    stated_widths,
    unknown_llama,
    unlike_flavor,
    unsaid,
)

FROM_FILE = "PipelineScheduleMulti"
"""`pipeline_parallel_schedule` where the schedule comes from a file (`pipeline_parallel_schedule_csv`)."""


def from_file(shape: Deployment) -> bool:
    """Return whether torchtitan reads the pipeline schedule from a file."""
    return shape.stages > 1 and shape.schedule not in CLASSES


def local_batch(shape: Deployment) -> int:
    """`local_batch_size`, samples: with a pipeline all micro-batches of a step, else one."""
    return samples(shape) * (shape.micro_batches if shape.stages > 1 else 1)


def parallelism(shape: Deployment, head: str) -> dict[str, Any]:
    """Keys of `parallelism` that 0.2.2 and 0.3.0 share; `head` is their name of the projection to the vocabulary."""
    shard = shard_ranks(shape, "torchtitan") if shape.zero[0] > 0 else 1
    section: dict[str, Any] = {
        "data_parallel_replicate_degree": shape.data_parallel // shard,
        "data_parallel_shard_degree": shard,
        "fsdp_reshard_after_forward": "always" if shape.zero[0] == 3 else "never",
        "tensor_parallel_degree": shape.tp,
        "context_parallel_degree": shape.cp,
        "expert_parallel_degree": shape.ep,
        "pipeline_parallel_degree": shape.stages,
    }
    if shape.stages > 1:
        modules = {"embedding": ["tok_embeddings"], "head": ["norm", head]}
        section["pipeline_parallel_schedule"] = CLASSES.get(shape.schedule, FROM_FILE)
        section["pipeline_parallel_microbatch_size"] = samples(shape)
        section["module_fqns_per_model_part"] = [
            [name for layer in run.layers for name in modules.get(layer, [layer])] for run in shape.runs
        ]
    return section


IMPORTED = "nest_torchtitan_model"
"""Module that teaches torchtitan a size it lacks."""

UNKNOWN = "nest"
"""A size that torchtitan does not know before somebody registers it: it refuses to train another by mistake."""

ROTATE = {"all_gather": "allgather", "ring": "alltoall"}
"""`context_parallel_rotate_method` by `training.context_exchange` (torchtitan/config/job_config.py of 0.2.2)."""


def toml_file(shape: Deployment, asked: Asked, model: Architecture | None) -> str:
    """The text of the file."""
    tables: dict[str, Mapping[str, Any]] = {
        "job": {"description": "written by nest export"},
        "model": _model(model),
        "training": _training(shape, asked),
        "parallelism": parallelism(shape, head="output"),
        "activation_checkpoint": {"mode": shape.recompute[0]},
        "optimizer": {"name": "AdamW" if asked.training.optimizer == "adamw" else "Adam"},
        "compile": {"enable": asked.training.kernels != "eager"},
    }
    rest = dict(tables["parallelism"])
    rest["expert_tensor_parallel_degree"] = shape.etp
    if shape.tp > 1 and asked.training.loss_parallel is False:
        rest["disable_loss_parallel"] = True
    if shape.cp > 1:
        rest["context_parallel_rotate_method"] = ROTATE[asked.training.key_exchange]
    if from_file(shape):
        rest["pipeline_parallel_schedule_csv"] = SCHEDULE_FILE
    tables["parallelism"] = rest
    if unknown_llama(model):
        tables["experimental"] = {"custom_import": IMPORTED}
    return "".join(f"# {line}\n" for line in _comments(model, asked)) + "\n" + toml_text(tables)


def _model(model: Architecture | None) -> dict[str, str]:
    known = flavor(model, OLD)
    if known is not None:
        return {"name": known.model, "flavor": known.name}
    return {"name": family(model) or UNKNOWN, "flavor": UNKNOWN}


def _training(shape: Deployment, asked: Asked) -> dict[str, Any]:
    """Weights and optimizer in single precision, products in the plan's (torchtitan/config/job_config.py)."""
    section: dict[str, Any] = {"local_batch_size": local_batch(shape), "global_batch_size": shape.global_batch}
    if shape.sequence_length is not None:
        section["seq_len"] = shape.sequence_length
    products = "bfloat16" if asked.training.precision == "bf16" else "float32"
    return {**section, "dtype": "float32", "mixed_precision_param": products, "mixed_precision_reduce": "float32"}


def _comments(model: Architecture | None, asked: Asked) -> list[str]:
    lines = [f"torchtitan {OLD}: torchrun ... -m torchtitan.train --job.config_file torchtitan.toml"]
    if flavor(model, OLD) is None:
        if unknown_llama(model):
            lines.append(f"torchtitan has no llama3 of these widths: {IMPORTED}.py, beside this file, registers one.")
        else:
            lines.append(
                f"torchtitan has no {family(model) or 'model'} of these widths: register a flavor {UNKNOWN!r}."
            )
        lines.append(f"Widths: {stated_widths(model)}.")
    elif other := unlike_flavor(model, asked.written):
        lines.append(other)
    if further := unsaid(model, asked.written):
        lines.append(further)
    return lines


def python_text(shape: Deployment, asked: Asked, model: Architecture | None, not_old: Sequence[str]) -> str:
    """The text of the module; `not_old` says why the older version cannot run the plan."""
    known = flavor(model, NEW)
    imports = [
        *(["from pathlib import Path", ""] if from_file(shape) else []),
        "from torchtitan.config import ParallelismConfig",
        *(["from torchtitan.distributed.activation_checkpoint import FullAC"] if shape.recompute[0] == "full" else []),
        *_recipe_imports(known),
        "from torchtitan.trainer import Trainer",
    ]
    head = [f'"""torchtitan {NEW}: torchrun ... -m torchtitan.train --module torchtitan_plan --config plan"""']
    notes = [f"# torchtitan {OLD} cannot run this plan: {reason}." for reason in not_old]
    if shape.cp > 1 and asked.training.key_exchange == "ring":
        notes.append(f"# The plan reckons with a ring of keys and values; torchtitan {NEW} gathers all of them.")
    if known is not None and (other := unlike_flavor(model, asked.written)):
        notes.append(f"# {other}")
    if further := unsaid(model, asked.written):
        notes.append(f"# {further}")
    parts = [*head, "", *imports, "", *([*notes, ""] if notes else []), *_plan(known, model), "", ""]
    return "\n".join([*parts, *_apply(shape, asked)]) + "\n"


def _recipe_imports(known: Flavor | None) -> list[str]:
    if known is None:
        return []
    recipe = known.recipe or RECIPES[known.model]
    registry = f"torchtitan.models.{known.model}"
    lines = [f"from {registry}.config_registry import {recipe}"]
    return lines if known.recipe else [f"from {registry} import model_registry", *lines]


def _plan(known: Flavor | None, model: Architecture | None) -> list[str]:
    lines = ["", "def plan() -> Trainer.Config:", '    """The run that the plan describes."""']
    if known is None:
        widths = stated_widths(model)
        remedy = f"torchtitan {NEW} has no model of these widths ({widths}): pass its Trainer.Config to `apply`"
        return [*lines, f"    raise NotImplementedError({remedy!r})"]
    lines.append(f"    config = {known.recipe or RECIPES[known.model]}()")
    if not known.recipe:
        lines.append(
            f"    config.model_spec = model_registry({known.name!r})  # hf_assets_path is that of another size"
        )
    return [*lines, "    return apply(config)"]


def _apply(shape: Deployment, asked: Asked) -> list[str]:
    """Settings of every run of the plan, for any model."""
    products = "bfloat16" if asked.training.precision == "bf16" else "float32"
    lines = [
        "def apply(config: Trainer.Config) -> Trainer.Config:",
        '    """`config` with the decisions of the plan."""',
        f"    config.training.local_batch_size = {local_batch(shape)}",
        f"    config.training.global_batch_size = {shape.global_batch}",
    ]
    if shape.sequence_length is not None:
        lines.append(f"    config.training.seq_len = {shape.sequence_length}")
    lines += [f"    config.training.mixed_precision_param = {products!r}", "    config.training.dtype = 'float32'"]
    if shape.stages > 1 or shape.ep > 1:  # torchtitan/trainer.py, `_validate_cuda_graphs`
        lines.append("    config.training.disable_cuda_graphs = True")
    lines.append("    config.parallelism = ParallelismConfig(")
    for key, value in parallelism(shape, head="lm_head").items():
        lines += _argument(key, value)
    if shape.tp > 1:
        lines.append(f"        enable_sequence_parallel={shape.sequence_parallel!r},")
    if from_file(shape):
        lines.append(
            f"        pipeline_parallel_schedule_csv=str(Path(__file__).resolve().with_name({SCHEDULE_FILE!r})),"
        )
    checkpoint = "FullAC.Config()" if shape.recompute[0] == "full" else "None"
    lines += ["    )", f"    config.compile.enable = {asked.training.kernels != 'eager'}"]
    return [*lines, f"    config.activation_checkpoint = {checkpoint}", "    return config"]


def _argument(key: str, value: object) -> list[str]:
    if isinstance(value, list):
        return [f"        {key}=[", *(f"            {part!r}," for part in value), "        ],"]
    return [f"        {key}={value!r},"]
