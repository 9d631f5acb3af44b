"""Hugging Face Accelerate: the YAML that `accelerate launch --config_file` reads, and what only its Python can say.

FSDP2 with a parallelism configuration, or plain data parallelism.
Keys: accelerate 1.15, commands/config/config_args.py (`ClusterConfig`), parallelism_config.py, utils/dataclasses.py
(`FullyShardedDataParallelPlugin`, `GradientAccumulationPlugin`).
"""

from collections.abc import Mapping
from typing import Any

from nest.deployment import Deployment
from nest.exporters.common import check_trained, checked, even_machines, problem_of, samples, shard_ranks
from nest.exporters.limits import sharded
from nest.io import yaml_text
from nest.spec import PlanDocument, Problem

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
    shape = checked(plan, sharded.accelerate(problem), "Accelerate")
    return {YAML_FILE: yaml_text(_configuration(plan, shape, problem)), PYTHON_FILE: _python(plan, shape)}


def _sharded(shape: Deployment) -> bool:
    """Whether parameters are sharded over anything."""
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
    """What the training script takes from the plan and no YAML key says."""
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
