"""From the YAML of `accelerate launch` to the keys of a problem; model and batch are the script's.

Keys: accelerate 1.15, commands/config/config_args.py (`ClusterConfig`), parallelism_config.py, utils/dataclasses.py.
"""

from typing import Any

from attrs import evolve

from nest.deployment import LaunchOptions, Reading
from nest.exporters.keys import Keys, launched, opened, said

SECTIONS = ("distributed_type", "fsdp_config", "deepspeed_config", "parallelism_config")

PLAIN, FSDP, DEEPSPEED = "plain", "fsdp", "deepspeed"

TYPES = {"no": PLAIN, "multi_gpu": PLAIN, "multi_xpu": PLAIN, "multi_npu": PLAIN, "fsdp": FSDP, "deepspeed": DEEPSPEED}

PRECISIONS: dict[Any, str] = {"bf16": "bf16", "fp16": "fp16", "no": "fp32", False: "fp32", "fp8": "fp8"}

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

UNPRICED = {
    "fsdp_config.fsdp_offload_params": "parameters are taken to stay on the device",
    "deepspeed_config.offload_param_device": "parameters are taken to stay on the device",
    "deepspeed_config.deepspeed_config_file": "`nest evaluate --from deepspeed` prices that file",
    "deepspeed_config.deepspeed_moe_layer_cls_names": "",
    "dynamo_config.dynamo_backend": "operators are taken to take what calibration says",
    "parallelism_config.parallelism_config_sp_size": "",
    "fp8_config": "8-bit training is priced as nest's precision fp8",
}
"""What is assumed where a key is set; empty: it is only named."""

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
    """What a configuration has Accelerate do.

    `options`: what else is said of the launch; its machines stand in place of the file's.

    Raises:
        InputErrors: keys contradict each other, or say what nest cannot price.
        InputError: it is no such file.
    """
    keys = Keys(opened(text, "accelerate.yaml", "Accelerate's keys", SECTIONS))
    settings, devices = sharding(keys, options or LaunchOptions())
    keys.note("batch and micro-batch are the problem's, as the script says them and not this file.")
    return Reading(settings, devices, notes=keys.finish(HARMLESS))


def sharding(keys: Keys, options: LaunchOptions) -> tuple[dict[str, Any], int | None]:
    """What a configuration says in the words of a problem, and how many processes it starts; mistakes stay in `keys`.

    None: nobody says how many.
    """
    kind = keys.choice("distributed_type", TYPES, PLAIN)
    machines, devices = _launch(keys, options)
    tp, cp = _size(keys, "tp"), _size(keys, "cp")
    fixed: dict[str, Any] = {"tp": tp, "sp": False, "cp": cp, "pp": 1}
    training: dict[str, Any] = {
        "precision": keys.choice("mixed_precision", PRECISIONS, None),
        "stack": "deepspeed" if kind == DEEPSPEED else "transformers",
    }
    training |= _exchange(keys, cp)
    replicas, shards = _groups(keys, devices, tp * cp, machines, kind)
    fixed |= {"zero": 0} if kind == PLAIN else {}
    if kind == FSDP:
        fixed |= _fsdp(keys, replicas, shards, cp, machines, devices)
    if kind == DEEPSPEED:
        fixed |= _deepspeed(keys, training)
    fixed["dp"] = None if shards is None else replicas * shards
    keys.unpriced(UNPRICED)
    return {"training": said(training), "fixed": said(fixed)}, devices


def _launch(keys: Keys, options: LaunchOptions) -> tuple[int, int | None]:
    """Machines and processes; None: nobody says."""
    machines, processes = keys.integer("num_machines") or 1, keys.integer("num_processes")
    each = options.devices_per_node
    if each is None and processes is not None and processes % machines == 0:
        each = processes // machines
    if options.nodes is None and options.devices_per_node is None and options.part is None:
        return machines, processes
    said_nodes = machines if options.nodes is None else options.nodes
    return said_nodes, launched(keys, evolve(options, nodes=said_nodes, devices_per_node=each))


def _size(keys: Keys, name: str) -> int:
    """A degree of `parallelism_config`, whose keys Accelerate writes with its name in front."""
    short, prefixed = (f"parallelism_config.{prefix}{name}_size" for prefix in ("", "parallelism_config_"))
    return keys.integer(short) or keys.integer(prefixed) or 1


def _groups(keys: Keys, devices: int | None, inner: int, machines: int, kind: str) -> tuple[int, int | None]:
    """How many groups of data-parallel ranks there are, and ranks in each; None: the cluster says."""
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
    if keys.value("deepspeed_config.deepspeed_config_file"):
        return {}
    offloaded = keys.choice("deepspeed_config.offload_optimizer_device", {"none": 0, "cpu": 1, "nvme": 2}, 0)
    if offloaded == 2:
        keys.note("deepspeed_config.offload_optimizer_device nvme is priced as cpu.")
    training["offload"] = ["optimizer"] if offloaded else []
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
