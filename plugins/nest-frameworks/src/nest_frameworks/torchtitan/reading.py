"""From a TOML file of torchtitan to the keys of a problem.

Defaults: torchtitan/config/job_config.py of 0.2.2; what they do: torchtitan/distributed/{parallel_dims,
pipeline_parallel}.py and torchtitan/train.py of that version.
"""

from collections.abc import Mapping
from itertools import accumulate, pairwise
from math import prod
from typing import Any

from nest.deployment import MODEL_LEFT, LaunchOptions, Reading
from nest.deployment.pytorch_schedules import CLASSES, FROM_FILE
from nest_frameworks.keys import Keys, launched, opened, said
from nest_frameworks.torchtitan.files import ROTATE, UNKNOWN
from nest_frameworks.torchtitan.models import FLAVORS, LLAMA, Flavor, described

STACK = "fsdp"

LOCAL_BATCH, LENGTH = 8, 2048
"""`local_batch_size` and `seq_len` left out."""

SCHEDULES = {name.lower(): schedule for schedule, name in CLASSES.items()}
LOOPED = ("interleaved", "interleaved-zero-bubble", "zb-v", "dualpipe-v")
MIRRORED = ("zb-v", "dualpipe-v")
"""Schedules whose second chunks lie on the stages in reverse order."""

GIVEN = ("pipelineschedulesingle", "pipelineschedulemulti", "_pipelinescheduleruntime")
"""Names of schedules that come from a file."""

UNPRICED = {
    "experimental.custom_args_module": "",
    "float8.enable_fsdp_float8_all_gather": "nest assumes weights to be gathered in 16 bits",
    "quantize.linear.float8.enable_fsdp_float8_all_gather": "nest assumes weights to be gathered in 16 bits",
}
"""Assumptions for set keys; empty: the key is only named."""

CHANGING = {
    "optimizer.early_step_in_backward": "nest assumes gradients to be kept for the step",
    "fault_tolerance.enable": "nest assumes one group of replicas, which reduces its gradients in every step",
    "parallelism.pipeline_parallel_expert_parallel_overlap": "nest assumes the exchange with experts not to overlap",
}
"""Keys that change layout, memory or model, with what nest prices."""

HARMLESS = (
    *("job.*", "profiling.*", "metrics.*", "lr_scheduler.*", "checkpoint.*", "comm.*", "validation.*", "debug.*"),
    *(
        "memory_estimation.*",
        "fault_tolerance.*",
        "experimental.custom_*",
        "optimizer.lr",
        "optimizer.eps",
        "optimizer.beta*",
    ),
    *("optimizer.weight_decay", "optimizer.implementation", "optimizer.fused", "model.*_path", "model.print_*"),
    *("training.max_norm", "training.dataset*", "training.gc_*", "training.seed", "training.deterministic"),
    *("training.dataloader*", "compile.backend", "experimental.enable_compiled_autograd", "float8.precompute_*"),
    *("float8.filter_fqns", "quantize.*.filter_fqns", "float8.force_*", "mx.*", "quantize.linear.float8.precompute_*"),
    *("activation_checkpoint.per_op_*", "activation_checkpoint.preserve_*", "activation_checkpoint.determinism_*"),
    *("activation_checkpoint.early_stop", "activation_checkpoint.debug", "parallelism.enable_compiled_autograd"),
)
"""Patterns of keys that change no cost that nest counts."""


def read(text: str, options: LaunchOptions | None = None) -> Reading:
    """Read a TOML file of torchtitan.

    `options`: what else is said of the launch, machines of eight processes unless it says others; without machines the
    degrees say how many ranks there are, or they are all of the cluster's.

    Raises:
        InputErrors: keys contradict each other, or say what nest cannot price.
        InputError: it is no such file.
    """
    keys = Keys(opened(text, "torchtitan.toml", "torchtitan's sections", ("model", "training", "parallelism")))
    _older(keys)
    _without_unused(keys)
    flavor, model = _model(keys)
    layers = flavor.figures[1] if flavor is not None else None
    fixed, devices = _degrees(keys, options or LaunchOptions())
    pipeline, blocks = _pipeline(keys, fixed["pp"], layers)
    fixed |= pipeline
    training = _training(keys, fixed)
    fixed |= _recompute(keys, blocks)
    keys.refuse(CHANGING)
    if keys.truth("parallelism.disable_loss_parallel"):
        training["loss_parallel"] = False
    if keys.truth("training.enable_cpu_offload"):
        training["offload"] = ["optimizer"]
        keys.on_host("training.enable_cpu_offload", state=True)
    keys.unpriced(UNPRICED)
    notes = keys.finish(HARMLESS)
    settings = {"training": training, "fixed": said(fixed), **({"model": model} if model is not None else {})}
    return Reading(settings, devices, notes=notes, ranks_per_node=keys.ranks_per_node)


def _older(keys: Keys) -> None:
    """Move keys to [parallelism] that releases before 0.2 had in [training] and [experimental]."""
    sections = {name: dict(each) for name, each in keys.content.items() if isinstance(each, Mapping)}
    degrees = sections.setdefault("parallelism", {})
    moved = [
        f"{name}.{key}"
        for name in ("training", "experimental")
        for key in sections.get(name, {})
        if "parallel" in key and key not in degrees
    ]
    for path in moved:
        name, key = path.split(".")
        degrees[key] = sections[name].pop(key)
    if "data_parallel_degree" in degrees:  # Until 0.0.2, beside `data_parallel_type` (config_manager.py, 441e22c2).
        kinds = ("replicate", "shard") if degrees.pop("data_parallel_type", "fsdp") == "ddp" else ("shard", "replicate")
        for kind, degree in zip(kinds, (degrees.pop("data_parallel_degree"), 1), strict=True):
            degrees.setdefault(f"data_parallel_{kind}_degree", degree)
    if moved:
        keys.content = {**keys.content, **sections}
        keys.note(f"these keys of older releases are read as those of [parallelism]: {', '.join(moved)}.")


def _without_unused(keys: Keys) -> None:
    """Leave out the settings of formats that no converter of the model uses (`[quantize]` of job_config.py)."""
    named, every = str(keys.content.get("model", {}).get("converters")), keys.content.get("quantize", {})
    parts = [(part, kinds) for part, kinds in every.items() if isinstance(kinds, Mapping)]
    used = {part: {kind: each for kind, each in kinds.items() if kind in named} for part, kinds in parts}
    keys.content = {**keys.content, "quantize": {**every, **used}}


def _model(keys: Keys) -> tuple[Flavor | None, Any]:
    """The size that torchtitan knows, and `model` of a problem for it; None: the problem has to say it."""
    name, size = keys.value("model.name") or LLAMA, keys.value("model.flavor") or "debugmodel"
    known = next((each for each in FLAVORS if (each.model, each.name) == (name, size)), None)
    if known is None and size != UNKNOWN:
        keys.note(f"nest has no figures of torchtitan's {name} {size}: {MODEL_LEFT}")
    return known, None if known is None else described(known)


def _degrees(keys: Keys, options: LaunchOptions) -> tuple[dict[str, Any], int | None]:
    """Degrees, what is sharded, and the number of ranks; None: all of the cluster."""
    degree = {name: keys.integer(f"parallelism.{name}_parallel_degree") or 1 for name in _DEGREES}
    replicas = keys.integer("parallelism.data_parallel_replicate_degree") or 1
    said_shards = keys.value("parallelism.data_parallel_shard_degree")
    shards = None if said_shards in (None, -1) else keys.integer("parallelism.data_parallel_shard_degree")
    tp, cp, pp, ep = degree.values()
    inner = tp * cp * pp * replicas
    devices = launched(keys, options)
    if shards is None and devices is not None:
        shards, left = divmod(devices, inner)
        if left:
            keys.problem(
                f"{devices} ranks are no multiple of {inner}, the product of the degrees of [parallelism]; give the "
                "--nodes and --devices-per-node that it runs on."
            )
            shards = 1
    if shards is not None and devices is not None and inner * shards != devices:
        keys.problem(f"the degrees of [parallelism] make {inner * shards} ranks, and --nodes makes {devices}.")
    if shards is None and replicas > 1:
        keys.problem(
            "parallelism.data_parallel_shard_degree is -1, so that the number of ranks decides how many shard; give "
            "--nodes, or write the degree there."
        )
    elif shards is None:
        keys.note("parallelism.data_parallel_shard_degree is -1: nest assumes all devices; change this with --nodes.")
    fixed: dict[str, Any] = {"tp": tp, "sp": tp > 1, "cp": cp, "pp": pp, "rank_order": "dp-inner"}
    if ep > 1:
        fixed |= {"ep": ep, "etp": keys.integer("parallelism.expert_tensor_parallel_degree") or 1}
    keys.value("parallelism.expert_tensor_parallel_degree")
    sharded = shards is None or shards * cp > 1
    fixed["zero"] = _zero(keys, pp) if sharded else 0
    keys.value("parallelism.fsdp_reshard_after_forward")
    if shards is not None:
        fixed["dp"] = replicas * shards
        if sharded and replicas > 1:
            fixed["zero_degree"] = shards * cp
    return fixed, None if shards is None else inner * shards


_DEGREES = ("tensor", "context", "pipeline", "expert")


def _zero(keys: Keys, pp: int) -> int:
    """ZeRO stage of FSDP.

    With a pipeline PyTorch keeps gradients and weights whole until the last micro-batch
    (torch/distributed/pipelining/stage.py, `backward_maybe_with_nosync`).
    """
    policies: dict[str, bool] = {"default": pp == 1, "always": True, "never": False}
    again = keys.choice("parallelism.fsdp_reshard_after_forward", policies, pp == 1)
    if pp > 1 and again:
        keys.note("parallelism.fsdp_reshard_after_forward always is priced as never, as there is a pipeline.")
    return 1 if pp > 1 else 3 if again else 2


def _pipeline(keys: Keys, pp: int, layers: int | None) -> tuple[dict[str, Any], list[list[int]]]:
    """Schedule, chunks and stages, and the blocks of each part of the model on each rank; none: nobody says."""
    word = keys.value("parallelism.pipeline_parallel_schedule")
    if keys.value("parallelism.pipeline_parallel_schedule_csv") or str(word).lower() in GIVEN:
        schedule = FROM_FILE[0]
        if pp > 1:
            keys.note(f"the file of the pipeline schedule is not read; nest assumes the schedule to be {schedule}.")
    else:
        schedule = keys.choice("parallelism.pipeline_parallel_schedule", SCHEDULES, "1f1b")
    parts = keys.value("parallelism.module_fqns_per_model_part")
    points = keys.value("parallelism.pipeline_parallel_split_points")
    ends = [keys.integer(f"parallelism.pipeline_parallel_{end}_stage_less_layers", 0) for end in ("first", "last")]
    per_stage = keys.integer("parallelism.pipeline_parallel_layers_per_stage")
    keys.value("parallelism.pipeline_parallel_microbatch_size")
    if pp == 1:
        return {"schedule": "1f1b"}, [] if layers is None else [[layers]]
    if points:
        keys.note("parallelism.pipeline_parallel_split_points is not read: torchtitan 0.2.2 has no such key.")
    if parts is not None:
        counts = _counts(keys, parts)
    elif layers is None:
        keys.note("nest assumes the blocks of the stages to be even, as torchtitan's split follows from the model.")
        return {"schedule": schedule, **({"chunks": 2} if schedule in LOOPED else {})}, []
    else:
        less = [1 if end is None else end for end in ends]
        counts = _even(keys, layers, less, per_stage, pp, schedule)
    decided = _stages(keys, counts, pp, schedule) if counts else {}
    blocks: list[list[int]] = [[] for _ in range(pp)]
    for part, count in enumerate(counts if decided else ()):
        blocks[_home(part, pp, schedule)].append(count)
    return decided, blocks if decided else []


def _counts(keys: Keys, parts: Any) -> list[int]:
    """Blocks of each part of the model; nothing where the key is no list of names of all of them in order."""
    named = isinstance(parts, list) and all(isinstance(part, list) for part in parts)
    blocks = [[str(name) for name in part if str(name).startswith("layers.")] for part in parts] if named else []
    if [name for part in blocks for name in part] != [f"layers.{number}" for number in range(sum(map(len, blocks)))]:
        blocks = []
    if not blocks:
        keys.problem("parallelism.module_fqns_per_model_part must list the blocks layers.0, layers.1, ... in order.")
    return [len(part) for part in blocks]


def _even(keys: Keys, layers: int, less: list[int], per_stage: int | None, pp: int, schedule: str) -> list[int]:
    """The split of torchtitan itself, ends counted as blocks (`generate_llm_fqn_per_model_part`)."""
    whole = layers + sum(less)
    parts = pp * (2 if schedule in LOOPED else 1) if per_stage is None else -(-whole // per_stage)
    if not 1 < parts <= whole:
        keys.problem(f"{layers} blocks cannot be split into {parts} parts of the model for {pp} pipeline stages.")
        return []
    size, further = divmod(whole, parts)
    counts = [size + (number < further) for number in range(parts)]
    counts[0] -= less[0]
    counts[-1] -= less[1]
    return counts


def _home(part: int, pp: int, schedule: str) -> int:
    """The pipeline rank that holds a part of the model."""
    return 2 * pp - 1 - part if schedule in MIRRORED and part >= pp else part % pp


def _stages(keys: Keys, counts: list[int], pp: int, schedule: str) -> dict[str, Any]:
    chunks, left = divmod(len(counts), pp)
    fitting = chunks == 2 if schedule in MIRRORED else (chunks > 1) == (schedule in LOOPED)
    if left or min(counts) < 0 or not fitting:
        keys.problem(
            f"{len(counts)} parts of the model do not fit {pp} pipeline stages with the schedule {schedule}; look at "
            "parallelism.pipeline_parallel_degree, _layers_per_stage and module_fqns_per_model_part."
        )
        return {}
    decided: dict[str, Any] = {"schedule": schedule, **({"chunks": chunks} if chunks > 1 else {})}
    if len(set(counts)) == 1:
        return decided
    if chunks == 1 and all(counts):
        return {**decided, "stages": counts}
    number = iter(range(sum(counts)))
    parts = [[f"layers.{next(number)}" for _ in range(count)] for count in counts]
    parts[0].insert(0, "embedding")
    parts[-1].append("head")
    stages: list[list[str]] = [[] for _ in range(pp)]
    for index, part in enumerate(parts):
        stages[_home(index, pp, schedule)] += part
    return {**decided, "stages": stages}


def _training(keys: Keys, fixed: dict[str, Any]) -> dict[str, Any]:
    local = keys.integer("training.local_batch_size") or keys.integer("training.batch_size") or LOCAL_BATCH
    said_batch = keys.value("training.global_batch_size")
    batch = None if said_batch in (None, -1) else keys.integer("training.global_batch_size")
    dp = fixed.get("dp")
    micro = (keys.integer("parallelism.pipeline_parallel_microbatch_size") or 1) if fixed["pp"] > 1 else local
    if local % micro:
        keys.problem(f"training.local_batch_size {local} is no multiple of the pipeline's micro-batch of {micro}.")
    if batch is None and dp is not None:
        batch = local * dp
    if batch is None:
        keys.problem(
            "training.global_batch_size is not given, and the number of ranks it follows from is not known: give "
            "--nodes, or write it or parallelism.data_parallel_shard_degree."
        )
    elif dp is not None and batch % (local * dp):
        keys.problem(
            f"training.global_batch_size {batch} is no multiple of training.local_batch_size {local} times {dp} "
            "data-parallel ranks."
        )
    elif fixed["pp"] > 1 and dp is not None and batch > local * dp:
        keys.note(f"the pipeline drains {batch // (local * dp)} times a step; it is priced as if it did so once.")
    fixed["micro_batch"] = micro
    length, steps = keys.integer("training.seq_len") or LENGTH, keys.integer("training.steps")
    return said(
        {
            "global_batch": batch,
            "sequence_length": length,
            "tokens": prod((steps, batch, length)) if steps and batch else None,
            "optimizer": keys.choice("optimizer.name", {"adamw": "adamw", "adam": "adam"}, "adamw"),
            "gradients": keys.choice("training.mixed_precision_reduce", {"float32": None, "bfloat16": "bf16"}, None),
            **_formats(keys, fixed),
            "stack": STACK,
            **_compiled(keys),
            **_overlap(keys),
            **_exchange(keys, fixed["cp"]),
        }
    )


def _formats(keys: Keys, fixed: dict[str, Any]) -> dict[str, Any]:
    """The format of products and, where it is not single precision, of all that is kept."""
    plain = {"bfloat16": "bf16", "float32": "fp32"}
    precision = keys.choice("training.mixed_precision_param", plain, "bf16")
    narrow = keys.choice("training.dtype", plain, "fp32") == "bf16"
    if not fixed["zero"] and fixed["tp"] * fixed["pp"] > 1 and precision == "bf16" and not narrow:
        # torchtitan/distributed/utils.py, `maybe_enable_amp`.
        keys.note(
            "torchtitan 0.2 trains in single precision beside TP or PP where FSDP shards nothing; it is priced so."
        )
        precision = "fp32"
    converters = keys.value("model.converters") or ()
    named = " ".join(map(str, converters)) if isinstance(converters, (list, tuple)) else str(converters)
    eight = "float8" in named or keys.truth("float8.enable_float8_linear")  # Before there were converters.
    precision = "fp8" if eight else "mxfp8" if "mx" in named else "bf16" if narrow else precision
    for recipe in ("float8.recipe_name", "quantize.linear.float8.recipe_name"):
        if keys.value(recipe) not in (None, "", "tensorwise") and precision == "fp8":
            keys.note(f"{recipe} {keys.value(recipe)} is priced as tensorwise.")
    if not narrow:
        return {"precision": precision}
    keys.note("training.dtype bfloat16: gradients are priced as kept in the format in which they are reduced.")
    return {"precision": precision, "master_weights": False, "master_gradients": False, "optimizer": "adam-bf16"}


def _compiled(keys: Keys) -> dict[str, str]:
    """Parts fused by torch.compile (`Compile` of job_config.py, components/loss.py).

    `nn.RMSNorm` is one kernel anyway from PyTorch 2.9 on, before which `compile` was a key of [training].
    """
    parts = keys.value("compile.components") or ("model", "loss")
    on = keys.truth("compile.enable", keys.truth("training.compile"))
    how = {part: "fused" if on and part in parts else "eager" for part in ("model", "loss")}
    old = keys.value("training.compile") is not None
    fused = str(keys.value("model.norm_type") or "").startswith(("fused", "compiled"))
    return {"kernels": how["model"], "loss": how["loss"], "norms": how["model"] if old and not fused else "fused"}


def _overlap(keys: Keys) -> dict[str, Any]:
    asynchronous = keys.truth("parallelism.enable_async_tensor_parallel")
    return {"overlap": {"tensor": True}} if asynchronous else {}


def _exchange(keys: Keys, cp: int) -> dict[str, Any]:
    names = {theirs: ours for ours, theirs in ROTATE.items()}
    exchange = keys.choice("parallelism.context_parallel_rotate_method", names, "all_gather")
    return {"context_exchange": exchange} if cp > 1 else {}


def _recompute(keys: Keys, blocks: list[list[int]]) -> dict[str, Any]:
    """Recompute mode, and its number of the `blocks` of each part of the model on each rank."""
    modes = {name: name for name in ("none", "selective", "full", "memory_budget")}
    mode = keys.choice("activation_checkpoint.mode", modes, "selective")
    option = str(keys.value("activation_checkpoint.selective_ac_option") or "2")
    keys.value("activation_checkpoint.memory_budget")
    if mode == "selective" and option in ("0", "1"):
        return {"recompute": "full"}
    if mode == "selective" and option.isdecimal() and blocks:
        return _every(keys, int(option), blocks)
    if mode in ("selective", "memory_budget"):
        told = f"selective (selective_ac_option {option})" if mode == "selective" else mode
        keys.note(
            f"activation_checkpoint.mode {told} is priced as nest's selective, which runs the operators again that "
            "training.selective names."
        )
        return {"recompute": "selective"}
    return {"recompute": mode}


def _every(keys: Keys, step: int, blocks: list[list[int]]) -> dict[str, Any]:
    """Every so manieth block, counted on from part to part of a rank (distributed/activation_checkpoint.py)."""
    ends = [[0, *accumulate(parts)] for parts in blocks]
    counts = [end // step - start // step for rank in ends for start, end in pairwise(rank)]
    least, most = min(counts), max(counts)
    number = least if least == most else f"{least} to {most}"
    keys.note(
        f"activation_checkpoint.selective_ac_option {step} runs {number} blocks of each part of the model again; it is "
        f"priced as if they were the first {least}."
    )
    return {"recompute": "full", "recompute_layers": least} if least else {"recompute": "none"}
