"""DeepSpeed: its JSON configuration, and for pipelines the module that holds the plan's stages.

Keys: DeepSpeed 0.19.8, runtime/config.py, runtime/zero/config.py, runtime/activation_checkpointing/config.py,
module_inject/auto_ep_presets/base.py. Stages: runtime/pipe/module.py.
"""

import json
from collections.abc import Mapping
from typing import Any

from nest.deployment import Deployment
from nest.exporters.common import check_trained, checked, data_ranks, problem_of, samples
from nest.exporters.limits import sharded
from nest.exporters.limits.shared import ULYSSES
from nest.hooks.architectures import architecture
from nest.spec import PlanDocument, Problem

JSON_FILE = "deepspeed.json"
PIPELINE_FILE = "deepspeed_pipeline.py"
TRAINED_FILE = "deepspeed_trained.py"

FORMATS = ("bf16", "fp16", "fp32")

PRESETS = ("mixtral", "qwen3_moe", "deepseek_v2", "deepseek_v3")
"""Families whose experts DeepSpeed finds by itself (module_inject/auto_ep_presets); nest writes dashes in them."""


def export(plan: PlanDocument) -> Mapping[str, str]:
    """`deepspeed.json`, with a pipeline `deepspeed_pipeline.py`, with frozen parts `deepspeed_trained.py`.

    Raises:
        InputError: DeepSpeed cannot run the plan, and why.
    """
    problem = problem_of(plan)
    shape = checked(plan, sharded.deepspeed(problem), "DeepSpeed")
    family = getattr(architecture(plan), "family", "").replace("-", "_")
    files = {JSON_FILE: json.dumps(_configuration(shape, problem, family), indent=2) + "\n"}
    if check := check_trained(plan):
        files[TRAINED_FILE] = "\n".join(check[2:]) + "\n"
    return files | ({PIPELINE_FILE: _pipeline(shape)} if shape.stages > 1 else {})


def _configuration(shape: Deployment, problem: Problem, family: str) -> dict[str, Any]:
    """The batch is `train_micro_batch_size_per_gpu * gradient_accumulation_steps *` data-parallel ranks."""
    training = problem.training
    configuration: dict[str, Any] = {
        "train_batch_size": shape.global_batch,
        "train_micro_batch_size_per_gpu": samples(shape),
        "gradient_accumulation_steps": shape.micro_batches,
        "zero_optimization": _zero(shape, problem),
    }
    if training.precision in ("bf16", "fp16"):
        configuration[training.precision] = {"enabled": True}
    if training.gradients is not None:
        configuration["data_types"] = {"grad_accum_dtype": training.gradients}
    if shape.tp > 1 and shape.stages == 1:
        configuration["tensor_parallel"] = {"autotp_size": shape.tp}
    if shape.degree(ULYSSES) > 1:
        configuration["sequence_parallel_size"] = shape.degree(ULYSSES)
    if shape.ep > 1:
        preset = {"preset_model": family} if family in PRESETS else {}
        configuration["expert_parallel"] = {"enabled": True, "autoep_size": shape.ep, **preset}
    if shape.recompute[0] == "full":
        configuration["activation_checkpointing"] = {
            "partition_activations": False,
            "cpu_checkpointing": False,
            "contiguous_memory_optimization": False,
            "number_checkpoints": shape.blocks,
        }
    if shape.stages > 1:
        configuration["pipeline"] = {
            "stages": shape.stages,
            "activation_checkpoint_interval": int(shape.recompute[0] == "full"),
        }
    return configuration


def _zero(shape: Deployment, problem: Problem) -> dict[str, Any]:
    section: dict[str, Any] = {"stage": shape.zero[0]}
    if shape.zero[0] > 0:
        section["overlap_comm"] = bool(problem.training.overlap.data)
        section["contiguous_gradients"] = True
    if "optimizer" in problem.training.offload:
        section["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    return section


def _pipeline(shape: Deployment) -> str:
    """A `PipelineModule` cut where the plan cuts: its own partition methods know even or weighted cuts only."""
    bounds = [0]
    for run in shape.runs:
        bounds.append(bounds[-1] + len(run.layers))
    names = [name for run in shape.runs for name in run.layers]
    interval = int(shape.recompute[0] == "full")
    return f'''"""The plan's pipeline for DeepSpeed; deepspeed.json, beside this file, has the rest of the plan."""

from deepspeed.runtime.pipe import PipelineModule
from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology

LAYERS = {_listed(names)}
"""What the list of layers given to `pipeline` must hold, in this order."""

BOUNDS = {bounds!r}
"""Stage `i` runs the layers from `BOUNDS[i]` up to `BOUNDS[i + 1]`."""

STAGES, DATA_PARALLEL, TENSOR_PARALLEL = {shape.stages}, {data_ranks(shape)}, {shape.tp}


class PlannedPipeline(PipelineModule):
    """A `PipelineModule` cut as the plan says."""

    def _partition_layers(self, method="uniform"):
        stage = self._topo.get_coord(self.global_rank).pipe
        self.parts = list(BOUNDS)
        self._set_bounds(start=BOUNDS[stage], stop=BOUNDS[stage + 1])


def pipeline(layers, loss_fn, blocks, **options):
    """The module to pass to `deepspeed.initialize`.

    Args:
        layers: layer specifications, one for each name of LAYERS; with TENSOR_PARALLEL above 1 they split themselves.
        loss_fn: of outputs and labels.
        blocks: names of the classes of transformer blocks: what is checkpointed.
        options: further arguments of `PipelineModule`.
    """
    if len(layers) != len(LAYERS):
        raise ValueError(f"the plan has {{len(LAYERS)}} layers, not {{len(layers)}}")
    topology = PipeModelDataParallelTopology(num_pp=STAGES, num_mp=TENSOR_PARALLEL, num_dp=DATA_PARALLEL)
    return PlannedPipeline(
        layers=layers,
        topology=topology,
        loss_fn=loss_fn,
        activation_checkpoint_interval={interval},
        checkpointable_layers=list(blocks),
        **options,
    )
'''


def _listed(names: list[str]) -> str:
    return "[\n" + "".join(f"    {name!r},\n" for name in names) + "]"
