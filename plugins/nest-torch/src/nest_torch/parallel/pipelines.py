"""The pipeline schedules of PyTorch, by the plan's names of them."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from nest.deployment import Deployment
from nest.deployment.pytorch_schedules import CLASSES, action
from nest.errors import InputError
from nest.hooks.pipelines import orders
from nest.spec import PlanDocument
from nest_torch.parallel import layout

WHOLE = ("1f1b", "gpipe", "interleaved")
"""Schedules of whole backward passes; steps of others take longer than planned, as stages compute passes whole."""


def pipeline_schedule(
    made: Sequence[nn.Module], plan: PlanDocument, shape: Deployment, meshes: layout.Meshes, loss: Any, device: Any
) -> Any:
    """The schedule of PyTorch that runs this rank's stages in the order of the plan.

    Raises:
        InputError: neither PyTorch nor the plan's schedule says that order, or PyTorch wants more micro-batches.
    """
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import get_schedule_class

    for stage in made:
        stage.sized = False
    mine = [index for index, run in enumerate(shape.runs) if run.stage == meshes.dense["pp"].get_local_rank()]
    group = meshes.dense["pp"].get_group()
    # Given a builder, PyTorch computes the gradients of weights together with those of inputs. Its own split of the
    # graph raises, or loses gradients, where weights share a part of it, as in split experts.
    parts = [
        PipelineStage(each, index, len(shape.runs), device, group=group, dw_builder=lambda: lambda: None)
        for each, index in zip(made, mine, strict=True)
    ]
    name = CLASSES.get(shape.schedule)
    passes = orders(plan)
    if name is None:
        if passes is None:
            raise InputError(f"the pipeline schedule {shape.schedule!r} does not say in which order stages work.")
        if shape.micro_batches != plan.micro_batches:
            raise InputError(f"the schedule {shape.schedule!r} runs steps of {plan.micro_batches} micro-batches only.")
        return _from_order(parts, shape, passes, loss)
    if shape.schedule == "1f1b" and shape.micro_batches < shape.stages:
        if shape.micro_batches != plan.micro_batches:  # A last batch, as small in memory in any order.
            return get_schedule_class("GPipe")(parts[0], shape.micro_batches, loss_fn=loss)
        raise InputError(
            f"PyTorch's 1F1B wants as many micro-batches as stages, and the plan has {shape.micro_batches} for "
            f"{shape.stages} stages; plan with search.target: pytorch."
        )
    several = shape.chunks > 1
    return get_schedule_class(name)(parts if several else parts[0], shape.micro_batches, loss_fn=loss)


def _from_order(parts: Any, shape: Deployment, passes: Any, loss: Any) -> Any:
    """A schedule that PyTorch has no class of, by every rank's actions."""
    import tempfile
    from pathlib import Path

    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    numbers = {(run.stage, run.chunk): number for number, run in enumerate(shape.runs)}
    rows = [
        ",".join(action(numbers[rank, step.chunk], step.kind, step.micro_batch) for step in row)
        for rank, row in enumerate(passes)
    ]
    made = _PipelineScheduleRuntime(parts, n_microbatches=shape.micro_batches, loss_fn=loss)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "order.csv"
        path.write_text("".join(f"{row}\n" for row in rows))
        made._load_csv(str(path))
    return made
