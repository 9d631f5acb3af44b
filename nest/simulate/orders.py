"""What a schedule says of the order of passes, checked."""

from nest.errors import InputError
from nest.hooks.guard import attribute
from nest.instance import OrderedSchedule, Pass, Schedule
from nest.instance.passes import order_fault


def orders_of(schedule: Schedule, stages: int, micro_batches: int, chunks: int) -> tuple[tuple[Pass, ...], ...]:
    """For each stage its passes, in order.

    Raises:
        InputError: the schedule does not say in which order stages work.
        PluginError: a plug-in's schedule gives an order that is none.
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
            attribute(schedule, f"gives stage {stage} of {stages} an order that is none: {fault}")
            raise AssertionError(f"{schedule.name}, stage {stage} of {stages}: {fault}")
    return orders
