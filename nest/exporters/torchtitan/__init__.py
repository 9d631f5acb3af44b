"""torchtitan: a TOML file for 0.2, a Python configuration for 0.3, and the pipeline schedule as PyTorch reads it.

Each of the two versions gets its file where it can run the plan.
"""

from collections.abc import Iterator, Mapping

from nest.deployment import Deployment, Limits
from nest.deployment.pytorch_schedules import RUNS
from nest.errors import InputError
from nest.exporters.common import (
    checked,
    mixture,
    model_of,
    problem_of,
    refuse_layers,
    refuse_training,
    shard_groups,
    whole_batches,
)
from nest.exporters.pipeline_actions import schedule_file
from nest.exporters.torchtitan.models import NEW, OLD, QWEN, family, registration, unknown_llama
from nest.hooks.architectures import architecture
from nest.spec import Architecture, PlanDocument, Problem
from nest.spec.architecture import GroupedQueryAttention

NAME = "torchtitan"
TOML_FILE = "torchtitan.toml"
PYTHON_FILE = "torchtitan_plan.py"

# FSDP with a pipeline: torch/distributed/pipelining/stage.py, `backward_maybe_with_nosync` and `perform_reduce_grad`
# (2.13). FSDP without: torchtitan/train.py (0.2.2) and trainer.py (0.3.0) never switch its synchronisation off.
_COMMON = {
    "uniform(zero)": "torchtitan has one FSDP setting for all stages",
    "uniform(recompute)": "torchtitan has one activation checkpointing mode for all stages",
    "dp * batch * cp == 1 or pp == 1 or zero in [0, 1]": (
        "with a pipeline PyTorch keeps gradients and weights whole until the last micro-batch, which is ZeRO 1 at most"
    ),
    "dp * batch * cp == 1 or pp > 1 or zero != 1": (
        "without a pipeline torchtitan's FSDP shards gradients as soon as they are there, which is ZeRO 2 or 3"
    ),
    "dp * batch * cp == 1 or pp > 1 or zero == 3 or micro_batches == 1": (
        "without a pipeline torchtitan reduces gradients and gathers weights for every micro-batch, as ZeRO 3 does"
    ),
    "zero > 0 or cp == 1": "torchtitan's FSDP always shards over the ranks of context parallelism",
}

_EXPERTS = {
    "etp == 1 or etp == tp": "torchtitan's experts have the tensor-parallel degree of all else, or none",
    "ep > 1 or etp == tp": "torchtitan splits experts over the tensor-parallel ranks without expert parallelism",
    "ep == 1 or etp == 1 or tp == 1 or sp == tp": (
        "torchtitan has tensor parallelism without sequence parallelism from 0.3 on, where experts are not split"
    ),
    "ep == 1 or zero > 0 or dp * batch == 1": "torchtitan takes expert-parallel ranks from those FSDP shards over",
}


def limits(problem: Problem) -> Limits:
    """What one of the versions can run.

    Raises:
        InputError: torchtitan does not train in that precision, or with that optimizer.
    """
    refuse_layers(problem, NAME)
    refuse_training(
        problem.training,
        NAME,
        NAME,
        precisions=("bf16", "fp32"),
        gradients=("fp32",),
        optimizers=("adam", "adamw"),
    )
    architecture = model_of(problem)
    constraints = dict(_COMMON)
    length = problem.training.sequence_length
    if length is not None:
        constraints[f"{length} % tp == 0"] = "torchtitan divides the sequence by the tensor-parallel degree"
        constraints[f"cp == 1 or {length} % (2 * tp * cp) == 0"] = (
            "torchtitan deals every context-parallel rank a chunk from the head of the sequence and one from its tail"
        )
    if architecture is not None:
        attention = architecture.blocks[0].attention
        if isinstance(attention, GroupedQueryAttention):
            constraints[f"{attention.kv_heads} % tp == 0"] = "torchtitan gives every tensor-parallel rank its own heads"
    constraints |= shard_groups(problem, "torchtitan") | whole_batches(problem, "torchtitan")
    if mixture(architecture) is not None:
        constraints |= _EXPERTS
        if family(architecture) == QWEN:
            constraints["pp == 1 or ep == 1 or etp == 1"] = (
                f"torchtitan {OLD} has no pipeline for qwen3, and {NEW} does not split experts by width"
            )
    return Limits(
        strategies=("tp", "sp", "cp", "ep", "etp", "batch"),
        # None whose stages end a batch one after the other: torchtitan ends it on all of them at once.
        schedules=RUNS,
        recompute=("none", "full"),
        zero_degrees=True,
        constraints=constraints,
    )


def export(plan: PlanDocument) -> Mapping[str, str]:
    """`torchtitan.toml`, `torchtitan_plan.py` and, with a pipeline, `pipeline_schedule.csv`.

    Raises:
        InputError: torchtitan cannot run the plan, and why.
    """
    from nest.exporters.torchtitan.files import IMPORTED, python_text, toml_file

    problem = problem_of(plan)
    shape = checked(plan, limits(problem), NAME)
    model = architecture(plan)
    beyond = {OLD: list(beyond_old(shape, model)), NEW: list(beyond_new(shape))}
    if all(beyond.values()):
        obstacles = " and ".join(f"torchtitan {version} cannot: {reasons[0]}" for version, reasons in beyond.items())
        raise InputError(f"no version of torchtitan can run this plan: {obstacles}.")
    files: dict[str, str] = {}
    if not beyond[OLD]:
        files[TOML_FILE] = toml_file(shape, problem, model, beyond[NEW])
        if model is not None and unknown_llama(model):
            files[f"{IMPORTED}.py"] = registration(model, problem.model)
    if not beyond[NEW]:
        files[PYTHON_FILE] = python_text(shape, problem, model, beyond[OLD])
    return files | schedule_file(plan, shape)


def beyond_old(shape: Deployment, architecture: Architecture | None) -> Iterator[str]:
    """Why torchtitan 0.2.2 cannot run a plan that is within the limits; nothing: it can."""
    if shape.tp > 1 and not shape.sequence_parallel:
        yield "its tensor parallelism always comes with sequence parallelism"
    length = shape.sequence_length
    if length is not None and length % (2 * shape.tp * shape.cp):
        yield "it divides the sequence by twice the degrees of tensor and context parallelism"
    replicated = shape.zero[0] == 0 and shape.data_parallel > 1
    if replicated and shape.data_parallel < shape.world_size:
        yield "it has data parallelism without sharding beside no other parallelism"
    if family(architecture) == QWEN and shape.stages > 1:
        yield "it has no pipeline for qwen3"


def beyond_new(shape: Deployment) -> Iterator[str]:
    """Why torchtitan 0.3.0 cannot run a plan that is within the limits; nothing: it can."""
    if shape.ep > 1 and shape.etp > 1:
        yield "it does not split experts by width beside expert parallelism"
