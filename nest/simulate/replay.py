"""A plan's batch, replayed."""

from collections.abc import Sequence
from typing import Any

from attrs import asdict, evolve, field, frozen

from nest.hooks.guard import attribute
from nest.instance import Instance, Pass, Solution, chunks_of
from nest.simulate.difference import Difference, closed_form, difference
from nest.simulate.disturbance import Disturbance, Disturbed, disturb
from nest.simulate.orders import orders_of
from nest.simulate.records import StageWork, Timeline
from nest.simulate.running import Progress, Stuck, run
from nest.simulate.timeline import batch_time, timeline
from nest.simulate.work import stage_works


@frozen
class StageReplay:
    """One stage of a replay.

    Attributes:
        busy: seconds at work on micro-batches, messages and collectives of passes included.
        synchronisation: seconds of gradient reduction and optimizer step.
        idle: seconds of the batch in which it does neither.
        memory_peak: the most bytes at any time.
        traffic: for each level of the network, innermost first, the seconds of the batch for which a device's port is
            occupied; None: the plan's candidates do not say.
    """

    busy: float
    synchronisation: float
    idle: float
    memory_peak: float
    traffic: tuple[float, ...] | None


@frozen
class Replay:
    """What came of a replay. Without disturbance all replicas are alike, so that one stands for all.

    Attributes:
        schedule: name of the schedule.
        micro_batches: of each replica.
        chunks: of each stage.
        replicas: `d`.
        batch_time: seconds.
        closed_form: seconds that PROBLEM.md section 4 gives the plan.
        difference: of the two, by reason.
        idle_share: share of the batch in which a device, on average over the stages, waits for the pipeline.
        stages: in pipeline order.
        timeline: passes and tasks of a replica.
        disturbed: what jitter and slow devices do; None: none were asked for.
    """

    schedule: str
    micro_batches: int
    chunks: int
    replicas: int
    batch_time: float
    closed_form: float
    difference: Difference
    idle_share: float
    stages: tuple[StageReplay, ...]
    timeline: Timeline = field(repr=False)
    disturbed: Disturbed | None = None

    def to_dict(self) -> dict[str, Any]:
        """All but the timelines, which `nest.simulate.trace` writes, in plain mappings, lists and numbers."""
        told = {name: getattr(self, name) for name in ("schedule", "micro_batches", "chunks", "replicas")}
        return {
            **told,
            "batch_time": self.batch_time,
            "closed_form": self.closed_form,
            "difference": {"total": self.batch_time - self.closed_form, **asdict(self.difference)},
            "idle_share": self.idle_share,
            "stages": [
                {**asdict(stage), "memory": [list(point) for point in memory]}
                for stage, memory in zip(self.stages, self.timeline.memory, strict=True)
            ],
            "disturbed": None if self.disturbed is None else self.disturbed.to_dict(),
        }


def replay(
    instance: Instance,
    solution: Solution,
    disturbance: Disturbance | None = None,
    progress: Progress | None = None,
) -> Replay:
    """Let the schedule of a plan run.

    Args:
        instance: the plan's problem in numbers.
        solution: its decisions, which make a plan of the problem.
        disturbance: what does not go as planned.
        progress: told how far it is.

    Raises:
        InputError: the schedule does not say in which order stages work, or the disturbance is of a stage or replica
            that is not there.
        PluginError: a plug-in's schedule gives an order that cannot be run.
    """
    works = stage_works(instance, solution)
    chunks, stages = solution.chunks, len(works)
    schedule = next(
        each for each in instance.space.schedules if each.name == solution.schedule and chunks_of(each) == chunks
    )
    micro_batches = instance.micro_batches(instance.candidates[solution.stages[0].candidate], solution.replicas)
    assert micro_batches is not None  # It is a plan of the problem.
    orders = orders_of(schedule, stages, micro_batches, chunks)
    seconds = [{each: work.seconds(*each) for each in work.passes} for work in works]

    def length(stage: int, step: Pass) -> float:
        return seconds[stage][step.kind, step.chunk]

    try:
        spans = run(orders, chunks, length, progress)
    except Stuck as stuck:
        attribute(schedule, f"orders passes so that {stuck}")
        raise AssertionError(f"{schedule.name}: {stuck}") from None
    staggered = bool(getattr(schedule, "staggered", False))
    whole = batch_time(spans, [work.sync for work in works], staggered)
    planned = timeline(works, spans)
    pipeline = batch_time(spans, [0.0] * stages, staggered)
    busy = sum(span.end - span.start for span in spans) / stages
    found = Replay(
        schedule=solution.schedule,
        micro_batches=micro_batches,
        chunks=chunks,
        replicas=solution.replicas,
        batch_time=whole,
        closed_form=closed_form(works, schedule.weights(micro_batches, stages)),
        difference=difference(works, spans, orders, schedule, micro_batches),
        # Rounding must not make a pipeline that never waits show a negative bubble.
        idle_share=max(pipeline - busy, 0.0) / whole if whole > 0 else 0.0,
        stages=_stages(works, planned, whole, micro_batches),
        timeline=planned,
    )
    if disturbance is None:
        return found
    return evolve(found, disturbed=disturb(works, spans, solution.replicas, staggered, whole, disturbance, progress))


def _stages(works: Sequence[StageWork], planned: Timeline, whole: float, micro_batches: int) -> tuple[StageReplay, ...]:
    busy = [0.0] * len(works)
    for span in planned.spans:
        busy[span.stage] += span.end - span.start
    return tuple(
        # Rounding must not make a stage that never waits show a negative wait.
        StageReplay(
            busy=seconds,
            synchronisation=work.sync,
            idle=max(whole - seconds - work.sync, 0.0),
            memory_peak=peak,
            traffic=None if work.ports is None else work.ports.traffic(micro_batches),
        )
        for work, seconds, peak in zip(works, busy, planned.peaks, strict=True)
    )
