"""Hugging Face Accelerate: the YAML that `accelerate launch --config_file` reads, and what only its Python can say.

FSDP2 with a parallelism configuration, or plain data parallelism.
Keys: accelerate 1.15, commands/config/config_args.py (`ClusterConfig`), parallelism_config.py, utils/dataclasses.py
(`FullyShardedDataParallelPlugin`, `GradientAccumulationPlugin`).
"""

from collections.abc import Mapping
from typing import Any

from nest.deployment import Deployment, Limits
from nest.exporters.common import (
    check_trained,
    checked,
    even_launch,
    even_machines,
    mixture,
    model_of,
    problem_of,
    refuse_layers,
    refuse_training,
    samples,
    shard_groups,
    shard_ranks,
    whole_batches,
)
from nest.io import yaml_text
from nest.spec import PlanDocument, Problem

YAML_FILE = "accelerate.yaml"
PYTHON_FILE = "accelerate_plan.py"

PRECISIONS = {"bf16": "bf16", "fp16": "fp16", "fp32": "no"}
"""`mixed_precision` by `training.precision`."""

# Accelerator.no_sync (accelerator.py) leaves gradients whole until the last micro-batch unless `sync_each_batch`.
_CONSTRAINTS = {
    "pp == 1": "Accelerate has no pipeline parallelism",
    "dp * batch * cp == 1 or zero != 1": (
        "Accelerate's FSDP shards gradients as soon as they are there, which is ZeRO 2 or 3"
    ),
    "dp * batch * cp == 1 or zero != 2 or micro_batches == 1": (
        "Accelerate's FSDP gathers the weights again for every micro-batch, which only ZeRO 3 does too"
    ),
    "zero > 0 or dp * batch * cp == 1 or tp * cp == 1": (
        "Accelerate cannot put tensor or context parallelism beside data parallelism without sharding"
    ),
    "zero == 0 or zero_degree == dp * batch or zero_degree > cp": (
        "Accelerate replicates groups of data-parallel ranks that shard, and a group needs two of them"
    ),
}


def limits(problem: Problem) -> Limits:
    """What Accelerate can run.

    Raises:
        InputError: it does not place such layers, or does not train in that precision.
    """
    refuse_layers(problem, "accelerate")
    gradients = (problem.training.precision,)
    refuse_training(problem.training, "accelerate", "Accelerate", precisions=tuple(PRECISIONS), gradients=gradients)
    constraints = _CONSTRAINTS | shard_groups(problem, "Accelerate") | whole_batches(problem, "Accelerate")
    constraints |= even_launch(problem, "Accelerate")
    if mixture(model_of(problem)) is not None:
        constraints["etp == tp"] = "Transformers splits experts over the tensor-parallel ranks, as all else"
    return Limits(
        strategies=("tp", "cp", "etp", "batch"),
        recompute=("none", "full"),
        zero_degrees=True,
        trainable=True,
        constraints=constraints,
    )


def export(plan: PlanDocument) -> Mapping[str, str]:
    """`accelerate.yaml` and `accelerate_plan.py`.

    Raises:
        InputError: Accelerate cannot run the plan, and why.
    """
    problem = problem_of(plan)
    shape = checked(plan, limits(problem), "Accelerate")
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
