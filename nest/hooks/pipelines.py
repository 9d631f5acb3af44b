"""Schedule of a plan, for exporters: stages of the chunks, and the passes of every device."""

from nest.deployment import Deployment, deployment
from nest.errors import InputError
from nest.hooks.registry import Registry, registry
from nest.instance import Pass, Schedule
from nest.spec import PlanDocument


def schedule_of(plan: PlanDocument, known: Registry | None = None) -> Schedule:
    """Schedule of `plan`, with its chunks.

    Args:
        plan: feasible.
        known: offers schedules; None: those installed.

    Raises:
        InputError: no schedule of that name is installed.
    """
    schedule = (known or registry()).schedules().get(plan.schedule or "")
    if schedule is None:
        raise InputError(f"the plan's schedule {plan.schedule!r} is not installed; install its plug-in.")
    with_chunks = getattr(schedule, "with_chunks", None)
    if with_chunks is None or (plan.chunks or 1) == 1:
        return schedule
    made: Schedule = with_chunks(plan.chunks)
    return made


def deployed(plan: PlanDocument) -> Deployment:
    """`plan` in frameworks' terms, its runs of layers in the order of a micro-batch.

    Raises:
        InputError: the plan is infeasible, or its schedule is not installed.
    """
    several = (plan.chunks or 1) > 1
    return deployment(plan, schedule_of(plan) if several else None)


def orders(plan: PlanDocument) -> tuple[tuple[Pass, ...], ...] | None:
    """Order of passes on each stage's device; None: the schedule gives none.

    Raises:
        InputError: the plan's schedule is not installed.
    """
    order = getattr(schedule_of(plan), "order", None)
    if order is None:
        return None
    count = len(plan.stages)
    return tuple(tuple(order(stage + 1, count, plan.micro_batches)) for stage in range(count))
