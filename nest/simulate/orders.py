"""What a schedule says of the order of passes, checked."""

from collections import Counter
from collections.abc import Sequence

from nest.errors import InputError
from nest.hooks.guarded import blame
from nest.instance import OrderedSchedule, Pass, Schedule

WHOLE, PARTS = ("forward", "backward"), ("forward", "input-gradients", "weight-gradients")
"""What a schedule may run of a micro-batch in a chunk, in this order."""


def orders_of(schedule: Schedule, stages: int, micro_batches: int, chunks: int) -> tuple[tuple[Pass, ...], ...]:
    """For each stage its passes, in order.

    Raises:
        InputError: the schedule does not say in which order stages work.
        PluginFault: a plug-in's schedule gives an order that is none.
    """
    if not isinstance(schedule, OrderedSchedule):
        raise InputError(
            f"the schedule {schedule.name!r} does not say in which order its stages work, so its plans cannot be "
            "replayed; a schedule says so with `order` (docs/reference/hooks.md)."
        )
    orders = tuple(tuple(schedule.order(stage, stages, micro_batches)) for stage in range(1, stages + 1))
    for stage, order in enumerate(orders, start=1):
        fault = order_fault(order, micro_batches, chunks)
        if fault is not None:
            blame(schedule, f"gives stage {stage} of {stages} an order that is none: {fault}")
            raise AssertionError(f"{schedule.name}, stage {stage} of {stages}: {fault}")
    return orders


def order_fault(order: Sequence[Pass], micro_batches: int, chunks: int) -> str | None:
    """What is wrong with one stage's order, in words; None: nothing."""
    ran: dict[tuple[int, int], list[str]] = {}
    for step in order:
        ran.setdefault((step.micro_batch, step.chunk), []).append(step.kind)
    wanted = {(index, chunk) for index in range(micro_batches) for chunk in range(chunks)}
    for micro_batch, chunk in sorted(wanted ^ ran.keys()):
        verb = "never runs" if (micro_batch, chunk) in wanted else "runs a"
        return f"it {verb} micro-batch {micro_batch} of chunk {chunk}, counted from 0"
    for (micro_batch, chunk), kinds in ran.items():
        if tuple(kinds) not in (WHOLE, PARTS):
            told = ", ".join(f"{count} {kind}" for kind, count in Counter(kinds).items())
            return (
                f"of micro-batch {micro_batch} in chunk {chunk}, counted from 0, it runs {told}; a forward pass comes "
                "first, then one backward pass, or input-gradients and weight-gradients"
            )
    return None
