"""Replay of a plan's batch: its difference from the closed form, and a check of its schedule."""

from collections.abc import Sequence
from typing import Any

from attrs import asdict, evolve, field, frozen

from nest.hooks.calls import attribute
from nest.instance import Instance, Pass, Solution, Weights
from nest.instance.schedule import Places, places_of
from nest.plan.certificate import Orders, Stuck, batch_length, certify, is_staggered
from nest.plan.layout import schedule_of
from nest.simulate.stage_tasks import Piece, StageWork, stage_works
from nest.simulate.stragglers_and_jitter import Disturbance, StragglersAndJitter, disturb
from nest.simulate.timeline import Progress, Timeline, makespan, orders_of, run, timeline, under_way
from nest.tolerances import AGREEMENT


@frozen
class Difference:
    """Seconds by which a replay exceeds the closed form `A max t + sum (Bf f + Bb b + Bw w) + max y`, by reason."""

    # If all stages had the passes of the slowest: the weights assume other shares of passes in the stage's time, or
    # other hiding of messages.
    passes: float
    chunks: float  # The chunks of the slowest stage differ, while the weights assume equal ones.
    stages: float  # Stages differ: the closed form fills and drains the pipeline with every stage's whole time.

    @property
    def total(self) -> float:
        """Seconds by which the replay is longer; below 0: shorter."""
        return self.passes + self.chunks + self.stages


@frozen
class StageReplay:
    """One stage of a replay."""

    busy: float  # Seconds of work on micro-batches, with messages and collectives of passes.
    synchronisation: float  # Seconds of gradient reduction and optimizer step.
    idle: float  # Seconds of the batch in which it does neither.
    memory_peak: float  # Most bytes at any time.
    # For each level of the network, innermost first, seconds of the batch that a device's port is occupied; None:
    # unknown.
    traffic: tuple[float, ...] | None


@frozen
class Replay:
    """Result of a replay. Without disturbance all replicas are alike, and one represents all.

    Attributes:
        schedule: name of the schedule.
        micro_batches: of each replica.
        chunks: of each stage.
        replicas: `d`.
        batch_time: seconds; the makespan of the passes and the longest optimizer step, with gradient reduction.
        closed_form: seconds by PROBLEM.md section 4.
        difference: of the two, by reason.
        idle_share: share of the batch in which a device, on average over the stages, waits for the pipeline.
        stages: in pipeline order.
        timeline: passes and tasks of a replica.
        places: of the passes in the pipeline.
        disturbed: effect of jitter and slow devices; None: not requested.
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
    places: Places = field(repr=False)
    disturbed: StragglersAndJitter | None = None

    def to_dict(self) -> dict[str, Any]:
        """Convert all but the timelines, which `nest.simulate.trace` writes, to plain mappings, lists and numbers."""
        names = ("schedule", "micro_batches", "chunks", "replicas")
        return {
            **{name: getattr(self, name) for name in names},
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
    instance: Instance, solution: Solution, disturbance: Disturbance | None = None, progress: Progress | None = None
) -> Replay:
    """Replay the schedule of a plan.

    Args:
        instance: the plan's problem in numbers.
        solution: a plan of the problem.
        disturbance: jitter and slow devices.
        progress: called regularly with the share done.

    Raises:
        InputError: the schedule gives no order of passes, or the disturbance names an unknown stage or replica.
        PluginError: a plug-in's schedule gives an order that cannot be run.
    """
    works = stage_works(instance, solution)
    chunks, stages = solution.chunks, len(works)
    schedule = schedule_of(instance, solution)
    micro_batches = instance.micro_batches(instance.candidates[solution.stages[0].candidate], solution.replicas)
    assert micro_batches is not None  # It is a plan of the problem.
    orders, places = orders_of(schedule, stages, micro_batches), places_of(schedule, stages, micro_batches)
    seconds = [{each: work.seconds(*each) for each in work.passes} for work in works]

    def length(stage: int, step: Pass) -> float:
        return seconds[stage][step.kind, step.chunk]

    try:
        spans = run(orders, places, length, lambda message: under_way(works, message, places), progress)
    except Stuck as stuck:
        attribute(schedule, f"orders passes so that {stuck}")
        raise AssertionError(f"{schedule.name}: {stuck}") from None
    staggered, weights = is_staggered(schedule), instance.space.weights(schedule, micro_batches, stages)
    pipeline = makespan(spans, staggered)
    whole = pipeline + max(work.sync for work in works)
    planned = timeline(works, spans, places, staggered)
    busy = sum(span.end - span.start for span in spans) / stages
    result = Replay(
        schedule=solution.schedule,
        micro_batches=micro_batches,
        chunks=chunks,
        replicas=solution.replicas,
        batch_time=whole,
        closed_form=closed_form(works, weights),
        difference=_difference(works, orders, places, weights, whole, pipeline, staggered),
        # Rounding must not make the share of a pipeline that never waits negative.
        idle_share=max(pipeline - busy, 0.0) / whole if whole > 0 else 0.0,
        stages=_stages(works, planned, whole, micro_batches),
        timeline=planned,
        places=places,
    )
    if disturbance is None:
        return result
    return evolve(
        result, disturbed=disturb(works, spans, places, solution.replicas, staggered, whole, disturbance, progress)
    )


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


def closed_form(works: Sequence[StageWork], weights: Weights) -> float:
    """`A max t + sum (Bf f + Bb b + Bw w) + max y` of these stages (PROBLEM.md section 4)."""
    slowest, filling = max(work.time for work in works), sum(work.weighed(weights) for work in works)
    return weights.slowest * slowest + filling + max(work.sync for work in works)


def _difference(
    works: Sequence[StageWork],
    orders: Orders,
    places: Places,
    weights: Weights,
    whole: float,
    pipeline: float,
    staggered: bool,
) -> Difference:
    """Difference between the replay and the closed form, by reason.

    `whole` are seconds of the replay, `pipeline` those without gradient reduction and optimizer step.
    """
    longest = max(works, key=lambda work: work.time)
    form = weights.slowest * longest.time + longest.weighed(weights) * len(works)
    mean = _uniform(longest, orders, places, staggered, alike=True)
    uniform = _uniform(longest, orders, places, staggered, alike=False) if longest.chunks > 1 else mean
    planned = weights.slowest * longest.time + sum(work.weighed(weights) for work in works)
    return Difference(
        passes=_clean(mean - form, whole),
        chunks=_clean(uniform - mean, whole),
        stages=_clean(pipeline - planned - (uniform - form), whole),
    )


def _uniform(work: StageWork, orders: Orders, places: Places, staggered: bool, *, alike: bool) -> float:
    """Seconds of the pipeline if every stage has the passes of `work`, with `alike` equal in all its chunks."""
    if alike:
        travel = {kind: sum(each for (of, _), each in work.travel.items() if of == kind) for kind, _ in work.passes}
        work = evolve(
            work,
            passes={each: (Piece(each[0], work.total(each[0]) / work.chunks),) for each in work.passes},
            travel={each: travel[each[0]] / work.chunks for each in work.passes},
        )
    seconds = {each: work.seconds(*each) for each in work.passes}
    return batch_length(orders, places, [seconds] * len(orders), staggered, [work.travel] * len(orders))


def _clean(seconds: float, whole: float) -> float:
    return 0.0 if abs(seconds) <= AGREEMENT * whole else seconds


def contradiction(instance: Instance, solution: Solution) -> str | None:
    """Contradiction of a plan's order of passes with its weights or counts, following its name; None: there is none.

    Schedules without an order, and those with more passes than `nest.plan.certificate.MOST`, are skipped.
    """
    micro_batches = instance.micro_batches(instance.candidates[solution.stages[0].candidate], solution.replicas)
    assert micro_batches is not None  # It is a plan of the problem.
    certificate = certify(schedule_of(instance, solution), micro_batches, len(solution.stages))
    return next(iter(certificate.faults), None)
