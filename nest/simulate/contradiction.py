"""Whether a plan's schedule keeps what its weights promise when its passes are run (docs/explanation/simulation.md)."""

from nest.errors import InputError
from nest.hooks.guard import Guarded, attribute
from nest.hooks.registry import Registry
from nest.instance import Instance, Solution
from nest.plan.certificate import batch_length, certify, is_staggered, longest_pipeline
from nest.plan.evaluate import schedule_of
from nest.simulate.replay import replay
from nest.simulate.work import stage_works
from nest.tolerances import AGREEMENT
from nest.units import format_seconds


def replay_plugin(instance: Instance, solution: Solution, known: Registry) -> None:
    """Refuse a plan whose schedule comes from a plug-in and is contradicted by its own order.

    Args:
        instance: the problem.
        solution: its plan.
        known: registered schedules and the like.

    Raises:
        PluginError: the schedule is contradicted.
        InputError: it is, and the problem names no other one.
    """
    schedule = schedule_of(instance, solution)
    reason = contradiction(instance, solution) if isinstance(schedule, Guarded) else None
    if reason is None:
        return
    if all(each.name == schedule.name for each in instance.space.schedules):
        raise InputError(
            f"the schedule {schedule.name!r} of plug-in {' '.join(known.origin('schedules', schedule.name))} {reason}, "
            "and the problem names no other; name one in training.schedule whose weights and order agree."
        )
    attribute(schedule, reason)


def contradiction(instance: Instance, solution: Solution) -> str | None:
    """How the order of a plan's schedule contradicts its weights or counts, to follow its name; None: it does not.

    A schedule without an order contradicts nothing, and what has more passes than `nest.plan.certificate.MOST` is not
    looked at.
    """
    schedule, count, chunks = schedule_of(instance, solution), len(solution.stages), solution.chunks
    micro_batches = instance.micro_batches(instance.candidates[solution.stages[0].candidate], solution.replicas)
    assert micro_batches is not None  # It is a plan of the problem.
    found = certify(schedule, micro_batches, count)
    if found.missing is None and found.equal_stages is not None:
        assert hasattr(schedule, "order")
        orders = [schedule.order(stage, count, micro_batches) for stage in range(1, count + 1)]
        works = stage_works(instance, solution)
        lengths = [{each: work.seconds(*each) for each in work.passes} for work in works]
        staggered = is_staggered(schedule)
        pipeline = batch_length(orders, micro_batches, chunks, lengths, staggered)
        most = longest_pipeline(
            schedule.weights(micro_batches, count), orders, micro_batches, chunks, lengths, staggered
        )
        if pipeline > most * (1 + AGREEMENT):
            run = replay(instance, solution)
            return (
                f"prices a plan of {micro_batches} micro-batches and {count} stages at "
                f"{format_seconds(run.closed_form)}, but in its order the passes take {format_seconds(run.batch_time)}"
            )
    return next(iter(found.faults), None)
