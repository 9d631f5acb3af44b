"""Hugging Face Accelerate: the YAML that `accelerate launch` reads, written and read, and what only its Python can say.

FSDP2 with a parallelism configuration, or plain data parallelism. Of a file that is read, model and batch are the
script's.
Keys: accelerate 1.15, commands/config/config_args.py (`ClusterConfig`), parallelism_config.py, utils/dataclasses.py
(`FullyShardedDataParallelPlugin`, `GradientAccumulationPlugin`).
"""

from collections.abc import Mapping
from typing import Any

from attrs import evolve

from nest.deployment import Deployment, LaunchOptions, Reading
from nest.io import yaml_text
from nest.spec import PlanDocument, Problem
from nest_frameworks.common import check_trained, checked, even_machines, problem_of, samples, shard_ranks
from nest_frameworks.keys import Keys, launched, opened, said
from nest_frameworks.limits import Asked, sharded

YAML_FILE = "accelerate.yaml"
PYTHON_FILE = "accelerate_plan.py"

PRECISIONS = {"bf16": "bf16", "fp16": "fp16", "fp32": "no"}
"""`mixed_precision` by `training.precision`."""


def export(plan: PlanDocument) -> Mapping[str, str]:
    """`accelerate.yaml` and `accelerate_plan.py`.

    Raises:
        InputError: Accelerate cannot run the plan, and why.
    """
    problem = problem_of(plan)
    shape = checked(plan, sharded.accelerate(Asked.of(problem)), "Accelerate")
    return {YAML_FILE: yaml_text(_configuration(plan, shape, problem)), PYTHON_FILE: _python(plan, shape)}


def _sharded(shape: Deployment) -> bool:
    """Return whether parameters are sharded over anything."""
    return shape.zero[0] > 0 and shape.data_parallel * shape.cp > 1


def _configuration(plan: PlanDocument, shape: Deployment, problem: Problem) -> dict[str, Any]:
    machines = even_machines(plan, "Accelerate")
    configuration: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "FSDP" if _sharded(shape) else "MULTI_GPU" if shape.world_size > 1 else "NO",
        "num_machines": machines,
        "num_processes": shape.world_size,
        "machine_rank": 0,
        "main_training_function": "main",
        "mixed_precision": PRECISIONS[problem.training.precision],
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": False,
    }
    if _sharded(shape):
        configuration["fsdp_config"] = {
            "fsdp_version": 2,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_reshard_after_forward": shape.zero[0] == 3,
            "fsdp_activation_checkpointing": shape.recompute[0] == "full",
            "fsdp_offload_params": False,
            "fsdp_state_dict_type": "SHARDED_STATE_DICT",
            "fsdp_cpu_ram_efficient_loading": True,
        }
    configuration["parallelism_config"] = _parallelism(shape, problem)
    return configuration


def _parallelism(shape: Deployment, problem: Problem) -> dict[str, Any]:
    """The repeated prefix is Accelerate's own."""
    within = shard_ranks(shape, "Accelerate") if _sharded(shape) else 1
    parallelism: dict[str, Any] = {
        "parallelism_config_dp_replicate_size": shape.data_parallel // within,
        "parallelism_config_dp_shard_size": within,
        "parallelism_config_tp_size": shape.tp,
        "parallelism_config_cp_size": shape.cp,
    }
    if shape.cp > 1:
        rotate = {"all_gather": "allgather", "ring": "alltoall"}[problem.training.key_exchange]
        parallelism["parallelism_config_cp_comm_strategy"] = rotate
    return parallelism


def _python(plan: PlanDocument, shape: Deployment) -> str:
    """Code of the training script for decisions without a YAML key."""
    lines = [
        '"""What the plan decides and accelerate.yaml cannot say; import it in the training script."""',
        "",
        "from accelerate import Accelerator",
        "from accelerate.utils import GradientAccumulationPlugin",
        "",
        f"PER_DEVICE_BATCH_SIZE = {samples(shape)}",
        f"GRADIENT_ACCUMULATION_STEPS = {shape.micro_batches}",
        f"GLOBAL_BATCH_SIZE = {shape.global_batch}",
        f"SEQUENCE_LENGTH = {shape.sequence_length!r}",
        f"GRADIENT_CHECKPOINTING = {shape.recompute[0] == 'full' and not _sharded(shape)!r}"
        "  # True: call model.gradient_checkpointing_enable()",
        "",
        "",
        "def accelerator() -> Accelerator:",
        '    """The accelerator of the plan; shards of gradients are reduced after every micro-batch."""',
        "    plugin = GradientAccumulationPlugin(",
        f"        num_steps=GRADIENT_ACCUMULATION_STEPS, sync_each_batch={_sharded(shape)!r}",
        "    )",
        "    return Accelerator(gradient_accumulation_plugin=plugin)",
        *check_trained(plan),
    ]
    return "\n".join(lines) + "\n"


SECTIONS = ("distributed_type", "fsdp_config", "deepspeed_config", "parallelism_config")

PLAIN, FSDP, DEEPSPEED = "plain", "fsdp", "deepspeed"

TYPES = {"no": PLAIN, "multi_gpu": PLAIN, "multi_xpu": PLAIN, "multi_npu": PLAIN, "fsdp": FSDP, "deepspeed": DEEPSPEED}

READ_PRECISIONS: dict[Any, str] = {"bf16": "bf16", "fp16": "fp16", "no": "fp32", False: "fp32", "fp8": "fp8"}
"""`training.precision` by `mixed_precision`, as files have it."""

FULL, GRADIENTS, NONE = (3, False), (2, False), (0, False)
STRATEGIES: dict[Any, tuple[int, bool]] = {
    "full_shard": FULL,
    "shard_grad_op": GRADIENTS,
    "no_shard": NONE,
    "1": FULL,
    "2": GRADIENTS,
    "3": NONE,
    1: FULL,
    2: GRADIENTS,
    3: NONE,
    4: (3, True),
    5: (2, True),
    "hybrid_shard": (3, True),
    "hybrid_shard_zero2": (2, True),
    "4": (3, True),
    "5": (2, True),
}
"""ZeRO stage of `fsdp_sharding_strategy`, and whether machines replicate what each shards."""

FILE = "deepspeed_config.deepspeed_config_file"
"""Key of DeepSpeed's own file, which then says everything of it."""

UNPRICED = {
    "deepspeed_config.deepspeed_moe_layer_cls_names": "",
    "dynamo_config.dynamo_backend": "nest assumes operators to take what calibration says",
    "fp8_config": "8-bit training is priced as nest's precision fp8",
}
"""Assumptions for set keys; empty: the key is only named."""

HARMLESS = (
    *("compute_environment", "debug", "downcast_bf16", "machine_rank", "main_*", "rdzv_backend", "same_network"),
    *("tpu_*", "use_cpu", "gpu_ids", "enable_cpu_affinity", "deepspeed_config.zero3_*", "dynamo_config.*"),
    *("deepspeed_config.gradient_clipping", "deepspeed_config.deepspeed_*", "deepspeed_config.*_nvme_path"),
    *("fsdp_config.fsdp_auto_wrap_policy", "fsdp_config.fsdp_transformer_*", "fsdp_config.fsdp_state_dict_type"),
    *("fsdp_config.fsdp_cpu_*", "fsdp_config.fsdp_sync_*", "fsdp_config.fsdp_use_orig_params", "commands", "command_*"),
    *("fsdp_config.fsdp_backward_prefetch*", "fsdp_config.fsdp_forward_prefetch", "fsdp_config.fsdp_min_num_params"),
    *("fsdp_config.fsdp_version", "fsdp_config.fsdp_limit_all_gathers", "fsdp_config.fsdp_final_state_dict_type"),
    *("fsdp_config.fsdp_xla*", "mpirun_config.*", "ipex_config.*"),
)
"""Patterns of keys that change no cost that nest counts."""


def read(text: str, options: LaunchOptions | None = None) -> Reading:
    """Read a configuration of Accelerate.

    `options`: what else is said of the launch; its machines stand in place of the file's.

    Raises:
        InputErrors: keys contradict each other, or say what nest cannot price.
        InputError: it is no such file.
    """
    keys = Keys(opened(text, "accelerate.yaml", "Accelerate's keys", SECTIONS))
    settings, devices = sharding(keys, options or LaunchOptions())
    keys.note("batch and micro-batch are the problem's, as the script says them and not this file.")
    return Reading(settings, devices, notes=keys.finish(HARMLESS), ranks_per_node=keys.ranks_per_node)


def sharding(keys: Keys, options: LaunchOptions) -> tuple[dict[str, Any], int | None]:
    """Translate a configuration into a problem's words, with its number of processes; mistakes stay in `keys`.

    None: nobody says how many.
    """
    kind = keys.choice("distributed_type", TYPES, PLAIN)
    machines, devices = _launch(keys, options)
    tp, cp = _size(keys, "tp"), _size(keys, "cp")
    fixed: dict[str, Any] = {"tp": tp, "sp": False, "cp": cp, "pp": 1}
    training: dict[str, Any] = {
        "precision": _precision(keys),
        "stack": "deepspeed" if kind == DEEPSPEED else "transformers",
    }
    training |= _exchange(keys, cp)
    replicas, shards = _groups(keys, devices, tp * cp, machines, kind)
    fixed |= {"zero": 0} if kind == PLAIN else {}
    if kind == FSDP:
        fixed |= _fsdp(keys, replicas, shards, cp, machines, devices)
        if keys.truth("fsdp_config.fsdp_offload_params"):
            training["offload"] = ["optimizer"]
            keys.on_host("fsdp_config.fsdp_offload_params", state=True)
    if kind == DEEPSPEED:
        fixed |= _deepspeed(keys, training)
    fixed["dp"] = None if shards is None else replicas * shards
    for path in ("parallelism_config.parallelism_config_sp_size", "parallelism_config.sp_size"):
        keys.refuse({path: "nest does not read Accelerate's sequence parallelism"})
    keys.unpriced(UNPRICED)
    return {"training": said(training), "fixed": said(fixed)}, devices


def _precision(keys: Keys) -> str:
    """Left out, single precision (commands/launch.py)."""
    if keys.value("mixed_precision") is None:
        keys.note("mixed_precision is left out, which `accelerate launch` takes for no: single precision.")
    return keys.choice("mixed_precision", READ_PRECISIONS, "fp32")


def _launch(keys: Keys, options: LaunchOptions) -> tuple[int, int | None]:
    """Machines and processes; None: nobody says."""
    machines, processes = keys.integer("num_machines") or 1, keys.integer("num_processes")
    each = options.devices_per_node
    if each is None and processes is not None and processes % machines == 0:
        each = processes // machines
    if options.nodes is None and options.devices_per_node is None and options.part is None:
        keys.ranks_per_node = each
        return machines, processes
    said_nodes = machines if options.nodes is None else options.nodes
    return said_nodes, launched(keys, evolve(options, nodes=said_nodes, devices_per_node=each))


def with_machines(content: Mapping[str, Any], options: LaunchOptions) -> LaunchOptions:
    """`options` with the machines and processes of a configuration, where they say none."""
    machines, processes = _launch(Keys(content), options)
    if options.nodes is not None or processes is None:
        return options
    return evolve(options, nodes=machines, devices_per_node=max(processes // machines, 1))


def _size(keys: Keys, name: str) -> int:
    """A degree of `parallelism_config`, whose keys Accelerate writes with its name in front."""
    short, prefixed = (f"parallelism_config.{prefix}{name}_size" for prefix in ("", "parallelism_config_"))
    return keys.integer(short) or keys.integer(prefixed) or 1


def _groups(keys: Keys, devices: int | None, inner: int, machines: int, kind: str) -> tuple[int, int | None]:
    """Number of groups of data-parallel ranks, and ranks in each; None: the cluster says."""
    replicas, shards = _size(keys, "dp_replicate"), _size(keys, "dp_shard")
    given = keys.value("parallelism_config")
    keys.asked.discard("parallelism_config")
    if given:
        if devices is not None and replicas * shards * inner != devices:
            keys.problem(
                f"the sizes of parallelism_config make {replicas * shards * inner} processes, and there are {devices}."
            )
        return replicas, shards
    return 1, devices


def _fsdp(keys: Keys, replicas: int, shards: int | None, cp: int, machines: int, devices: int | None) -> dict[str, Any]:
    stage, hybrid = keys.choice("fsdp_config.fsdp_sharding_strategy", STRATEGIES, FULL)
    again = keys.value("fsdp_config.fsdp_reshard_after_forward")
    if isinstance(again, bool) or str(again).lower() in ("true", "false"):
        stage = 3 if str(again).lower() == "true" else 2
    elif again is not None:
        stage, hybrid = keys.choice("fsdp_config.fsdp_reshard_after_forward", STRATEGIES, FULL)
    decided: dict[str, Any] = {"zero": stage}
    if keys.truth("fsdp_config.fsdp_activation_checkpointing"):
        decided["recompute"] = "full"
    if replicas > 1 and shards is not None:
        decided["zero_degree"] = shards * cp
    elif hybrid and machines > 1 and devices is not None:
        decided["zero_degree"] = devices // machines
    return decided


def _deepspeed(keys: Keys, training: dict[str, Any]) -> dict[str, Any]:
    stage = keys.integer("deepspeed_config.zero_stage", 0)
    if (file := keys.value(FILE)) is not None:
        keys.problem(f"{FILE} is {file!s:.80}; `nest evaluate --from deepspeed` prices that file.")
    offloaded = keys.choice("deepspeed_config.offload_optimizer_device", {"none": 0, "cpu": 1, "nvme": 2}, 0)
    if offloaded == 2:
        keys.note("deepspeed_config.offload_optimizer_device nvme is priced as cpu.")
    training["offload"] = ["optimizer"] if offloaded else []
    if keys.choice("deepspeed_config.offload_param_device", {"none": False, "cpu": True, "nvme": True}, False):
        keys.on_host("deepspeed_config.offload_param_device", bool(offloaded))
    training["gradients"] = {"fp8": "bf16"}.get(training["precision"], training["precision"])  # As DeepSpeed does.
    steps = keys.value("deepspeed_config.gradient_accumulation_steps")
    counted = None if steps == "auto" else keys.integer("deepspeed_config.gradient_accumulation_steps")
    stage = 2 if stage is None else stage  # The plugin's default.
    if stage > 3:
        keys.problem(f"deepspeed_config.zero_stage is {stage}; it must be 0, 1, 2 or 3.")
    return {"zero": stage, "micro_batches": counted}


def _exchange(keys: Keys, cp: int) -> dict[str, Any]:
    path = "parallelism_config.parallelism_config_cp_comm_strategy"
    exchange = keys.choice(path, {"allgather": "all_gather", "alltoall": "ring"}, "all_gather")
    return {"context_exchange": exchange} if cp > 1 else {}
