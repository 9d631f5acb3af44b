"""The Python configuration of torchtitan 0.3.0, which reads no TOML."""

from collections.abc import Sequence

from nest.deployment import Deployment
from nest.exporters.torchtitan.decisions import SCHEDULE_FILE, Decisions, decisions, parallelism
from nest.exporters.torchtitan.models import NEW, OLD, RECIPES, Flavor, flavor, told_widths, unlike_flavor
from nest.spec import Architecture, Problem


def python_text(shape: Deployment, problem: Problem, model: Architecture | None, not_old: Sequence[str]) -> str:
    """The text of the module.

    Args:
        shape: the plan.
        problem: what it solves.
        model: what it trains.
        not_old: why the older version cannot run the plan; empty: it can.
    """
    told = decisions(shape, head="lm_head")
    known = flavor(model, NEW)
    imports = [
        *(["from pathlib import Path", ""] if told.from_file else []),
        "from torchtitan.config import ParallelismConfig",
        *(["from torchtitan.distributed.activation_checkpoint import FullAC"] if shape.recompute[0] == "full" else []),
        *_recipe_imports(known),
        "from torchtitan.trainer import Trainer",
    ]
    head = [f'"""torchtitan {NEW}: torchrun ... -m torchtitan.train --module torchtitan_plan --config plan"""']
    notes = [f"# torchtitan {OLD} cannot run this plan: {reason}." for reason in not_old]
    if shape.cp > 1 and problem.training.key_exchange == "ring":
        notes.append(f"# The plan reckons with a ring of keys and values; torchtitan {NEW} gathers all of them.")
    if known is not None and (other := unlike_flavor(model, problem.model)):
        notes.append(f"# {other}")
    parts = [*head, "", *imports, "", *([*notes, ""] if notes else []), *_plan(known, model), "", ""]
    return "\n".join([*parts, *_apply(shape, problem, told)]) + "\n"


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
        told = (
            f"torchtitan {NEW} has no model of these widths ({told_widths(model)}): pass its Trainer.Config to `apply`"
        )
        return [*lines, f"    raise NotImplementedError({told!r})"]
    lines.append(f"    config = {known.recipe or RECIPES[known.model]}()")
    if not known.recipe:
        lines.append(
            f"    config.model_spec = model_registry({known.name!r})  # hf_assets_path is that of another size"
        )
    return [*lines, "    return apply(config)"]


def _apply(shape: Deployment, problem: Problem, told: Decisions) -> list[str]:
    """What every run of the plan has, whatever the model."""
    products = "bfloat16" if problem.training.precision == "bf16" else "float32"
    lines = [
        "def apply(config: Trainer.Config) -> Trainer.Config:",
        '    """`config` with the decisions of the plan."""',
        f"    config.training.local_batch_size = {told.local_batch}",
        f"    config.training.global_batch_size = {shape.global_batch}",
    ]
    if shape.sequence_length is not None:
        lines.append(f"    config.training.seq_len = {shape.sequence_length}")
    lines += [f"    config.training.mixed_precision_param = {products!r}", "    config.training.dtype = 'float32'"]
    if shape.stages > 1 or shape.ep > 1:  # torchtitan/trainer.py, `_validate_cuda_graphs`
        lines.append("    config.training.disable_cuda_graphs = True")
    lines.append("    config.parallelism = ParallelismConfig(")
    for key, value in parallelism(shape, told).items():
        lines += _argument(key, value)
    if shape.tp > 1:
        lines.append(f"        enable_sequence_parallel={shape.sequence_parallel!r},")
    if told.from_file:
        lines.append(
            f"        pipeline_parallel_schedule_csv=str(Path(__file__).resolve().with_name({SCHEDULE_FILE!r})),"
        )
    checkpoint = "FullAC.Config()" if shape.recompute[0] == "full" else "None"
    return [*lines, "    )", f"    config.activation_checkpoint = {checkpoint}", "    return config"]


def _argument(key: str, value: object) -> list[str]:
    if isinstance(value, list):
        return [f"        {key}=[", *(f"            {part!r}," for part in value), "        ],"]
    return [f"        {key}={value!r},"]
