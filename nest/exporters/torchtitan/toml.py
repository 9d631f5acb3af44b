"""The TOML file of torchtitan 0.2.2, the last version that reads one."""

from collections.abc import Mapping, Sequence
from typing import Any

from nest.deployment import Deployment
from nest.exporters.torchtitan.decisions import SCHEDULE_FILE, decisions, parallelism
from nest.exporters.torchtitan.models import LLAMA, NEW, OLD, family, flavor, told_widths, unlike_flavor
from nest.io import toml_text
from nest.spec import Architecture, Problem

IMPORTED = "nest_torchtitan_model"
"""Module that teaches torchtitan a size it lacks."""

UNKNOWN = "nest"
"""A size that torchtitan does not know before somebody registers it: it refuses to train another by mistake."""

ROTATE = {"all_gather": "allgather", "ring": "alltoall"}
"""`context_parallel_rotate_method` by `training.context_exchange` (torchtitan/config/job_config.py of 0.2.2)."""


def toml_file(shape: Deployment, problem: Problem, model: Architecture | None, not_new: Sequence[str]) -> str:
    """The text of the file.

    Args:
        shape: the plan.
        problem: what it solves.
        model: what it trains.
        not_new: why the newer version cannot run the plan; empty: it can.
    """
    told = decisions(shape, head="output")
    tables: dict[str, Mapping[str, Any]] = {
        "job": {"description": "written by nest export"},
        "model": _model(model),
        "training": _training(shape, problem, told.local_batch),
        "parallelism": parallelism(shape, told),
        "activation_checkpoint": {"mode": shape.recompute[0]},
        "optimizer": {"name": "AdamW" if problem.training.optimizer == "adamw" else "Adam"},
    }
    rest = dict(tables["parallelism"])
    rest["expert_tensor_parallel_degree"] = shape.etp
    if shape.cp > 1:
        rest["context_parallel_rotate_method"] = ROTATE[problem.training.key_exchange]
    if told.from_file:
        rest["pipeline_parallel_schedule_csv"] = SCHEDULE_FILE
    tables["parallelism"] = rest
    if tables["model"]["flavor"] == UNKNOWN and family(model) == LLAMA and model is not None and not model.tied:
        tables["experimental"] = {"custom_import": IMPORTED}
    return "".join(f"# {line}\n" for line in _comments(model, problem, not_new)) + "\n" + toml_text(tables)


def _model(model: Architecture | None) -> dict[str, str]:
    known = flavor(model, OLD)
    if known is not None:
        return {"name": known.model, "flavor": known.name}
    return {"name": family(model) or UNKNOWN, "flavor": UNKNOWN}


def _training(shape: Deployment, problem: Problem, local_batch: int) -> dict[str, Any]:
    """Weights and optimizer in single precision, products in the plan's (torchtitan/config/job_config.py)."""
    found: dict[str, Any] = {"local_batch_size": local_batch, "global_batch_size": shape.global_batch}
    if shape.sequence_length is not None:
        found["seq_len"] = shape.sequence_length
    products = "bfloat16" if problem.training.precision == "bf16" else "float32"
    return {**found, "dtype": "float32", "mixed_precision_param": products, "mixed_precision_reduce": "float32"}


def _comments(model: Architecture | None, problem: Problem, not_new: Sequence[str]) -> list[str]:
    lines = [f"torchtitan {OLD}: torchrun ... -m torchtitan.train --job.config_file torchtitan.toml"]
    if flavor(model, OLD) is None:
        name = family(model)
        if name == LLAMA and model is not None and not model.tied:
            lines.append(f"torchtitan has no llama3 of these widths: {IMPORTED}.py, beside this file, registers one.")
        else:
            lines.append(f"torchtitan has no {name or 'model'} of these widths: register a flavor {UNKNOWN!r}.")
        lines.append(f"Widths: {told_widths(model)}.")
    elif other := unlike_flavor(model, problem.model):
        lines.append(other)
    lines += [f"torchtitan {NEW} cannot run this plan: {reason}." for reason in not_new]
    return lines
