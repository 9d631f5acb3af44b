"""The schedule of a plan, for exporters: where the chunks of its stages lie, and what every device runs when."""

from nest.deployment import Deployment, deployment
from nest.errors import InputError
from nest.hooks.registry import Registry, registry
from nest.instance import Pass, Schedule
from nest.spec import PlanDocument


def schedule_of(plan: PlanDocument, known: Registry | None = None) -> Schedule:
    """The schedule that `plan` names, with the chunks it has.

    Args:
        plan: feasible.
        known: offers schedules; None: those installed.

    Raises:
        InputError: nobody brings a schedule of that name.
    """
    schedule = (known or registry()).schedules().get(plan.schedule or "")
    if schedule is None:
        raise InputError(
            f"the plan's pipeline schedule is {plan.schedule!r}, which is not installed; install the plug-in that "
            "brings it."
        )
    with_chunks = getattr(schedule, "with_chunks", None)
    if with_chunks is None or (plan.chunks or 1) == 1:
        return schedule
    made: Schedule = with_chunks(plan.chunks)
    return made


def deployed(plan: PlanDocument) -> Deployment:
    """`plan` in the terms frameworks use, its runs of layers in the order in which a micro-batch passes them.

    Raises:
        InputError: the plan is infeasible, or nobody brings its schedule.
    """
    several = (plan.chunks or 1) > 1
    return deployment(plan, schedule_of(plan) if several else None)


def orders(plan: PlanDocument) -> tuple[tuple[Pass, ...], ...] | None:
    """For each stage the passes that its device runs, one after the other; None: the schedule does not say.

    Raises:
        InputError: nobody brings the plan's schedule.
    """
    order = getattr(schedule_of(plan), "order", None)
    if order is None:
        return None
    count = len(plan.stages)
    return tuple(tuple(order(stage + 1, count, plan.micro_batches)) for stage in range(count))
