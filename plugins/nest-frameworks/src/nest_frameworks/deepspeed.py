"""DeepSpeed: its JSON configuration, written and read, and for pipelines the module that holds the plan's stages.

Keys and defaults: DeepSpeed 0.19.8, runtime/{config,constants}.py, runtime/zero/config.py,
runtime/activation_checkpointing/config.py, module_inject/auto_ep_presets/base.py. Stages: runtime/pipe/module.py. In a
file that is read, `auto` is what Hugging Face's Trainer fills in (huggingface.co/docs/transformers/deepspeed); model,
sequence length and launch are elsewhere.
"""

import json
from collections.abc import Mapping
from typing import Any

from nest.deployment import Deployment, LaunchOptions, Reading
from nest.hooks.architectures import architecture
from nest.spec import PlanDocument, Problem
from nest_frameworks.common import check_trained, checked, data_ranks, problem_of, samples
from nest_frameworks.keys import UNKNOWN_OPTIMIZER, Keys, launched, opened, said
from nest_frameworks.limits import PLUGIN, ULYSSES, Asked, gradient_format, sharded

JSON_FILE = "deepspeed.json"
PIPELINE_FILE = "deepspeed_pipeline.py"
TRAINED_FILE = "deepspeed_trained.py"

FORMATS = ("bf16", "fp16", "fp32")

BATCH, MICRO, STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"

SEQUENCE, REDUCED = "sequence_parallel_size", "communication_data_type"

PRESETS = ("mixtral", "qwen3_moe", "deepseek_v2", "deepseek_v3")
"""Families whose experts DeepSpeed finds by itself (module_inject/auto_ep_presets); nest writes dashes in them."""


def export(plan: PlanDocument) -> Mapping[str, str]:
    """`deepspeed.json`, with a pipeline `deepspeed_pipeline.py`, with frozen parts `deepspeed_trained.py`.

    Raises:
        InputError: DeepSpeed cannot run the plan, and why.
    """
    problem = problem_of(plan)
    shape = checked(plan, sharded.deepspeed(Asked.of(problem)), "DeepSpeed")
    family = getattr(architecture(plan), "family", "").replace("-", "_")
    files = {JSON_FILE: json.dumps(_configuration(shape, problem, family), indent=2) + "\n"}
    if check := check_trained(plan):
        files[TRAINED_FILE] = "\n".join(check[2:]) + "\n"
    return files | ({PIPELINE_FILE: _pipeline(shape)} if shape.stages > 1 else {})


def _configuration(shape: Deployment, problem: Problem, family: str) -> dict[str, Any]:
    """The keys of `deepspeed.json`.

    DeepSpeed checks that `train_batch_size` is micro-batch, steps and ranks multiplied, and counts tensor-parallel
    ranks too (runtime/config.py, `DeepSpeedConfig`), so it is left out beside them. Gradients are added up and reduced
    in the model's format unless both keys say otherwise (engine.py, `get_data_types`, `communication_data_type`).
    """
    training, gradients = problem.training, gradient_format(problem.training)
    configuration: dict[str, Any] = {
        BATCH: shape.global_batch,
        MICRO: samples(shape),
        STEPS: shape.micro_batches,
        "zero_optimization": _zero(shape, problem),
    }
    if training.precision in ("bf16", "fp16"):
        configuration[training.precision] = {"enabled": True}
    if gradients != "fp32" or training.precision != "fp32":
        configuration |= {"data_types": {"grad_accum_dtype": gradients}, REDUCED: gradients}
    if shape.tp > 1 and shape.stages == 1:
        configuration["tensor_parallel"] = {"autotp_size": shape.tp}
        if training.loss_parallel is not False:  # None is priced as shared, too.
            configuration["tensor_parallel"][SHARED_LOSS] = True
        del configuration[BATCH]
    if shape.degree(ULYSSES) > 1:  # Without `data_parallel_size` DeepSpeed makes no groups for it (`initialize`).
        configuration |= {SEQUENCE: shape.degree(ULYSSES), "data_parallel_size": data_ranks(shape)}
        configuration[f"seq_parallel_{REDUCED}"] = gradients
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
    mixed = gradient_format(problem.training) != problem.training.precision
    # DeepSpeed does not start ZeRO 0 with wider gradients; on one data-parallel rank ZeRO 1 is the same.
    section: dict[str, Any] = {"stage": max(shape.zero[0], int(mixed))}
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


STACK = "deepspeed"

SHARED_LOSS = "vocab_parallel_lm_head"
"""Key of `tensor_parallel` of 0.19.8 with which the ranks share the loss, and gather no logits."""

SECTIONS = (BATCH, MICRO, STEPS, "zero_optimization", "bf16", "fp16")

UNPRICED = {
    "data_efficiency.data_sampling.curriculum_learning.enabled": "nest assumes samples to be of full length",
    "curriculum_learning.enabled": "nest assumes samples to be of full length",
    "compile.enabled": "nest assumes operators to take what calibration says",
}
"""Assumptions for set keys."""

CHANGING = {
    "sparse_attention": "nest assumes every query to attend to every key",
    "data_efficiency.data_routing.random_ltd.enabled": "nest assumes all tokens to pass all layers",
    "compression_training": "nest assumes weights to be neither pruned nor quantised",
    "zero_optimization.zero_quantized_weights": "nest assumes weights to be gathered in 16 bits",
    "zero_optimization.zero_quantized_gradients": "nest assumes gradients to be reduced in their own format",
    "zero_optimization.zero_quantized_nontrainable_weights": "nest assumes frozen weights to be gathered in 16 bits",
    **dict.fromkeys(
        ("bf16.bf16_master_weights_and_grads", "fp16.fp16_master_weights_and_grads", "bf16.bf16_optimizer_states"),
        "nest assumes the optimizer and its weights to be in single precision",
    ),
    "tensor_parallel.tp_overlap_comm": "nest assumes tensor-parallel communication not to overlap",
    "activation_checkpointing.partition_activations": "nest assumes every rank to keep the inputs of its layers",
    "activation_checkpointing.cpu_checkpointing": "nest assumes inputs of layers to stay on the device",
    "elasticity.enabled": "nest assumes the batch that the file gives",
    "amp.enabled": "nest reads the sections bf16 and fp16",
    "compile.deepcompile": "nest assumes weights to be gathered layer by layer",
    "autotuning.enabled": "nest assumes the settings of the file",
}
"""Keys that change layout, memory or model, with what nest prices."""

HARMLESS = (
    *("optimizer.params.*", "scheduler.*", "gradient_clipping", "prescale_gradients", "steps_per_print", "dump_state"),
    *("wall_clock_breakdown", "memory_breakdown", "tensorboard.*", "wandb.*", "csv_monitor.*", "comms_logger.*"),
    *("flops_profiler.*", "autotuning.*", "checkpoint.*", "data_efficiency.*", "dataloader_*", "seed", "fp16.*"),
    *("bf16.*", "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "gradient_predivide_factor"),
    *("zero_optimization.*_bucket_size", "zero_optimization.stage3_*", "zero_optimization.sub_group_size"),
    *("zero_optimization.contiguous_gradients", "zero_optimization.reduce_scatter", "zero_optimization.round_robin_*"),
    *("zero_optimization.allgather_partitions", "zero_optimization.load_from_*", "zero_optimization.elastic_*"),
    *("zero_optimization.ignore_unused_parameters", "zero_optimization.offload_*", "amp.*", "compile.*"),
    *("zero_optimization.gather_16bit_*", "zero_optimization.memory_efficient_linear", "sparse_gradients"),
    *("zero_optimization.max_*", "_comment", "tensor_parallel.preset_model", "tensor_parallel.partition_config.*"),
    *(f"tensor_parallel.{key}" for key in ("use_*", "tp*.tp_grain_size", "dtype", "vocab_parallel_ce_backend")),
    *("activation_checkpointing.*", "expert_parallel.*", "curriculum_learning.*", "elasticity.*", "data_types.*"),
)
"""Patterns of keys that change no cost that nest counts."""


def read(text: str, options: LaunchOptions | None = None) -> Reading:
    """Read a configuration of DeepSpeed.

    `options`: what else is said of the launch, machines of eight processes unless it says others; without machines the
    batch says how many ranks there are, or they are all of the cluster's.

    Raises:
        InputErrors: keys contradict each other, or say what nest cannot price.
        InputError: it is no such file.
    """
    content = opened(text, "deepspeed.json", "DeepSpeed's keys", SECTIONS)
    filled: list[str] = []
    keys = Keys(_without_auto(content, "", filled))
    stage = keys.integer("zero_optimization.stage", 0) or 0
    if stage > 3:
        keys.problem(f"zero_optimization.stage is {stage}; it must be 0, 1, 2 or 3.")
    fixed: dict[str, Any] = {"zero": stage, **_degrees(keys)}
    if (shard := keys.integer("zero_optimization.mics_shard_size", -1)) is not None and shard > 0:
        fixed["zero_degree"] = shard
    batch, devices = _batch(
        keys, fixed, launched(keys, options or LaunchOptions()), any(path in filled for path in (BATCH, MICRO, STEPS))
    )
    precision = _precision(keys, filled)
    training = {
        "global_batch": batch,
        "precision": precision,
        "optimizer": _optimizer(keys),
        "gradients": _gradients(keys, precision, fixed),
        "offload": _offload(keys),
        "loss_parallel": keys.truth(f"tensor_parallel.{SHARED_LOSS}") or None,
        "stack": STACK,
        **_overlap(keys, stage),
    }
    if filled:
        keys.note(f"these keys are auto, and the problem says what of them matters: {', '.join(sorted(filled))}.")
    if keys.choice("zero_optimization.offload_param.device", {"none": False, "cpu": True, "nvme": True}, False):
        keys.on_host("zero_optimization.offload_param", bool(training["offload"]))
    keys.refuse(CHANGING)
    keys.unpriced(UNPRICED)
    settings = {"training": said(training), "fixed": said(fixed)}
    return Reading(settings, devices, notes=keys.finish(HARMLESS), ranks_per_node=keys.ranks_per_node)


def _without_auto(content: Mapping[str, Any], above: str, filled: list[str]) -> dict[str, Any]:
    """`content` without the keys that are `auto`, whose paths `filled` gets."""
    kept: dict[str, Any] = {}
    for key, value in content.items():
        if value == "auto":
            filled.append(f"{above}{key}")
        else:
            kept[key] = _without_auto(value, f"{above}{key}.", filled) if isinstance(value, Mapping) else value
    return kept


def _degrees(keys: Keys) -> dict[str, Any]:
    stages = keys.integer("pipeline.stages") or 1
    every = keys.integer("pipeline.activation_checkpoint_interval", 0) or 0
    keys.value("pipeline")
    degrees: dict[str, Any] = {"pp": stages, "recompute": _recompute(keys, stages, every)}
    tp = keys.integer("tensor_parallel.autotp_size", 0)
    if keys.value("tensor_parallel.tp.tp_size") not in (None, 1, tp):
        keys.problem(
            "tensor_parallel.tp.tp_size is not tensor_parallel.autotp_size, which splits the model; give both alike."
        )
    if stages == 1:
        degrees |= {"tp": tp or 1, "sp": False}
    else:
        degrees["schedule"] = "1f1b"
        keys.note(
            "the script's PipelineModule decides layers per stage and TP: nest assumes even stages; change this with "
            "--fix stages=[...] and --fix tp=N."
        )
    ulysses = keys.integer(SEQUENCE) or 1
    keys.integer("data_parallel_size")  # Which follows from the number of ranks.
    if ulysses > 1:
        degrees[ULYSSES] = ulysses
        keys.note(f"{SEQUENCE} {ulysses} exchanges tokens for heads, which takes {PLUGIN}")
    experts = keys.integer("expert_parallel.autoep_size") or 1
    if keys.truth("expert_parallel.enabled") and experts > 1:
        degrees |= {"ep": experts, "etp": 1}
    return degrees


def _recompute(keys: Keys, stages: int, every: int) -> str | None:
    """Recompute mode; None: the file does not say."""
    if stages > 1:
        if every > 1:
            keys.note(f"pipeline.activation_checkpoint_interval {every} is priced as 1: every layer keeps its inputs.")
        return "full" if every else "none"
    section = keys.value("activation_checkpointing")
    keys.asked.discard("activation_checkpointing")
    if not section:
        return None
    keys.note("activation_checkpointing is given: nest assumes the script to checkpoint every block.")
    return "full"


def _batch(keys: Keys, fixed: dict[str, Any], ranks: int | None, automatic: bool) -> tuple[int | None, int | None]:
    """The global batch and the number of ranks, as far as the file and the launch say them; the rest into `fixed`.

    `train_batch_size` counts the samples of tensor-parallel ranks apart, which read the same ones.
    """
    batch, micro, steps = (keys.integer(path) for path in (BATCH, MICRO, STEPS))
    tp = fixed.get("tp", 1)
    inner = tp * fixed["pp"] * fixed.get(ULYSSES, 1)
    counted = None if ranks is None else ranks * tp // inner
    if ranks is not None and ranks % inner:
        keys.problem(f"{ranks} ranks are no multiple of {inner}, the product of the degrees; give other --nodes.")
        return batch, None
    if counted is None and batch and micro and steps:
        counted, left = divmod(batch, micro * steps)
        counted = 0 if left or counted % tp else counted
    if counted and batch and not (micro and steps):
        # As `_set_batch_related_parameters` does.
        micro = micro or batch // (counted * (steps or 1)) or None
        steps = steps or batch // (counted * (micro or 1)) or None
    if counted and micro and batch is None and not automatic:
        batch = micro * (steps or 1) * counted
    if counted is not None and batch and micro and steps and batch != micro * steps * counted:
        kind = "data-parallel ranks" if tp == 1 else f"data-parallel and {tp} tensor-parallel ranks, all of which count"
        number = counted or "a whole number of"
        keys.problem(f"{BATCH} {batch} is not {MICRO} {micro} times {STEPS} {steps} times {number} {kind}.")
    if batch is None and micro and not automatic:
        keys.problem(f"{BATCH} is not given, and the number of ranks it follows from is not known: give --nodes.")
    fixed["micro_batch"] = micro
    data = counted // tp if counted else None
    if data and ULYSSES not in fixed:
        fixed["dp"] = data
    known = data and ("tp" in fixed or ranks is not None)
    return None if batch is None else batch // tp, data * inner if data and known else None


def _gradients(keys: Keys, precision: str | None, fixed: Mapping[str, Any]) -> str | None:
    """The format gradients are added up in, left out the model's; None: the problem says that."""
    formats = dict(zip(FORMATS, FORMATS, strict=True))
    added = keys.choice("data_types.grad_accum_dtype", formats, precision)
    split = ULYSSES in fixed
    reduced = keys.choice(f"seq_parallel_{REDUCED}" if split else REDUCED, formats, "fp32" if split else precision)
    if reduced != added:
        keys.note(
            f"gradients are priced as reduced in {added}, in which they are added up; DeepSpeed does in {reduced}."
        )
    if precision is None:
        keys.note("DeepSpeed adds gradients up in the model's format unless data_types.grad_accum_dtype says another.")
    elif added != precision and not fixed["zero"]:
        keys.problem(
            f"data_types.grad_accum_dtype is {added} beside {precision}, which DeepSpeed takes from ZeRO 1 on; "
            "give zero_optimization.stage."
        )
    return added


def _precision(keys: Keys, filled: list[str]) -> str | None:
    """None: the problem says it."""
    chosen = [name for name in ("bf16", "fp16") if keys.truth(f"{name}.enabled")]
    if len(chosen) > 1:
        keys.problem("bf16.enabled and fp16.enabled are both true; DeepSpeed takes one of them.")
    if chosen or not {"bf16.enabled", "fp16.enabled"}.intersection(filled):
        return chosen[0] if chosen else "fp32"
    return None


def _optimizer(keys: Keys) -> str | None:
    name = str(keys.value("optimizer.type") or "")
    known = {"adam": "adam", "adamw": "adamw", "sgd": "sgd", "lion": "lion", "lamb": "adam", "": None}
    if name.lower() not in known:
        keys.problem(f"optimizer.type is {name:.60}, {UNKNOWN_OPTIMIZER}.")
    if name.lower() == "lamb":
        keys.note("optimizer.type Lamb is priced as Adam, which keeps as much state.")
    return known.get(name.lower())


def _offload(keys: Keys) -> list[str] | None:
    path = "zero_optimization.offload_optimizer.device"
    device = keys.choice(path, {"none": None, "cpu": "cpu", "nvme": "nvme"}, None)
    if device == "nvme":
        keys.note(f"{path} nvme is priced as cpu.")
    ratio = keys.value("zero_optimization.offload_optimizer.ratio")
    if device and ratio not in (None, 1):
        keys.problem(f"{path.replace('device', 'ratio')} is {ratio!s:.20}; nest prices 1, the whole state on the host.")
    return ["optimizer"] if device else []


def _overlap(keys: Keys, stage: int) -> dict[str, Any]:
    overlaps = keys.truth("zero_optimization.overlap_comm", stage == 3)
    return {"overlap": {"data": overlaps}} if stage > 0 else {}
