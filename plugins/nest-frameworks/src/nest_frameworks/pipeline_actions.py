"""Order of passes on every stage: pipeline schedules in PyTorch's form.

A row is one pipeline rank, an entry `{stage}{F|B|I|W}{micro-batch}`: forward, whole backward, backward of the inputs,
backward of the weights (torch/distributed/pipelining/schedules.py, `_Action.from_str` and `_load_csv`). A stage here is
one run of layers, numbered in the order in which a micro-batch passes them: run `k` of a plan.
"""

from collections.abc import Sequence

from nest.deployment import Deployment
from nest.deployment.pytorch_schedules import action
from nest.errors import InputError
from nest.hooks.pipelines import deployed, orders
from nest.hooks.protocols import Pass
from nest.spec import PlanDocument

Order = tuple[tuple[str, ...], ...]
"""For each rank its actions."""


def actions(shape: Deployment, passes: Sequence[Sequence[Pass]]) -> Order:
    """For each rank its actions in order. Shape `(ranks, actions)`.

    `passes`: what each stage runs, one after the other.
    """
    numbers = {(run.stage, run.chunk): number for number, run in enumerate(shape.runs)}
    return tuple(
        tuple(action(numbers[rank, step.chunk], step.kind, step.micro_batch) for step in row)
        for rank, row in enumerate(passes)
    )


def csv_text(order: Order) -> str:
    """Input of PyTorch's `_load_csv`: a row for each rank."""
    return "".join(",".join(row) + "\n" for row in order)


SCHEDULE_FILE = "pipeline_schedule.csv"


def schedule_file(plan: PlanDocument) -> dict[str, str]:
    """The file of a plan's schedule; none without a pipeline.

    Raises:
        InputError: the schedule does not say in which order stages work.
    """
    shape = deployed(plan)
    if shape.stages == 1:
        return {}
    passes = orders(plan)
    if passes is None:
        raise InputError(f"there is no order of actions for the pipeline schedule {shape.schedule!r}.")
    return {SCHEDULE_FILE: csv_text(actions(shape, passes))}
