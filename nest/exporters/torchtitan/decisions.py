"""A plan's decisions by torchtitan's names, alike in all its versions."""

from typing import Any

from attrs import frozen

from nest.deployment import Deployment
from nest.exporters.checked import samples, shard_ranks

SCHEDULES = {"1f1b": "1F1B", "gpipe": "GPipe", "interleaved": "Interleaved1F1B"}
"""PyTorch's names (torch/distributed/pipelining/schedules.py, `get_schedule_class`)."""

FROM_FILE = "PipelineScheduleMulti"
"""What torchtitan is told where the schedule comes from a file (`pipeline_parallel_schedule_csv`)."""

SCHEDULE_FILE = "pipeline_schedule.csv"


@frozen
class Decisions:
    """What torchtitan is told.

    Attributes:
        replicate: `data_parallel_replicate_degree`.
        shard: `data_parallel_shard_degree`.
        reshard: `fsdp_reshard_after_forward`.
        schedule: `pipeline_parallel_schedule`.
        from_file: whether the schedule is read from a file.
        local_batch: `local_batch_size`, samples: with a pipeline all micro-batches of a step, else one.
        micro_batch: `pipeline_parallel_microbatch_size`, samples.
        parts: `module_fqns_per_model_part`; empty without a pipeline.
    """

    replicate: int
    shard: int
    reshard: str
    schedule: str
    from_file: bool
    local_batch: int
    micro_batch: int
    parts: tuple[tuple[str, ...], ...]


def decisions(shape: Deployment, head: str) -> Decisions:
    """What torchtitan is told of a plan.

    Args:
        shape: within its limits.
        head: torchtitan's name of the projection to the vocabulary.
    """
    shard = shard_ranks(shape, "torchtitan") if shape.zero[0] > 0 else 1
    pipeline = shape.stages > 1
    from_file = pipeline and shape.schedule not in SCHEDULES
    return Decisions(
        replicate=shape.data_parallel // shard,
        shard=shard,
        reshard="always" if shape.zero[0] == 3 else "never",
        schedule=FROM_FILE if from_file else SCHEDULES.get(shape.schedule, "1F1B"),
        from_file=from_file,
        local_batch=samples(shape) * (shape.micro_batches if pipeline else 1),
        micro_batch=samples(shape),
        parts=tuple(_modules(run.layers, head) for run in shape.runs) if pipeline else (),
    )


def _modules(layers: tuple[str, ...], head: str) -> tuple[str, ...]:
    names: list[str] = []
    for layer in layers:
        names += {"embedding": ["tok_embeddings"], "head": ["norm", head]}.get(layer, [layer])
    return tuple(names)


def parallelism(shape: Deployment, told: Decisions) -> dict[str, Any]:
    """The keys of `parallelism` that 0.2.2 and 0.3.0 share."""
    found: dict[str, Any] = {
        "data_parallel_replicate_degree": told.replicate,
        "data_parallel_shard_degree": told.shard,
        "fsdp_reshard_after_forward": told.reshard,
        "tensor_parallel_degree": shape.tp,
        "context_parallel_degree": shape.cp,
        "expert_parallel_degree": shape.ep,
        "pipeline_parallel_degree": shape.stages,
    }
    if told.parts:
        found["pipeline_parallel_schedule"] = told.schedule
        found["pipeline_parallel_microbatch_size"] = told.micro_batch
        found["module_fqns_per_model_part"] = [list(part) for part in told.parts]
    return found
