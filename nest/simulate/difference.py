"""Why a replay takes longer or shorter than the closed form of PROBLEM.md section 4."""

from collections.abc import Sequence

from attrs import frozen

from nest.instance import Schedule
from nest.simulate.records import Span, StageWork
from nest.simulate.running import Orders, run
from nest.simulate.timeline import batch_time
from nest.tolerances import AGREEMENT


@frozen
class Difference:
    """Seconds by which a replay exceeds the closed form `A max t + B sum t + max y`, by reason.

    Attributes:
        passes: on stages that all have the passes of the slowest: the weights take passes to have other shares of the
            stage's time than they have here.
        chunks: the chunks of the slowest stage differ: the weights take them to be alike.
        stages: stages differ: the closed form fills and drains the pipeline with every stage's whole time.
        synchronisation: the closed form adds the longest one to the end of the last pass; the replay lets each stage
            begin its own.
    """

    passes: float
    chunks: float
    stages: float
    synchronisation: float

    @property
    def total(self) -> float:
        """Seconds by which the replay takes longer; below 0: shorter."""
        return self.passes + self.chunks + self.stages + self.synchronisation


def closed_form(works: Sequence[StageWork], weights: tuple[float, float]) -> float:
    """`A max t + B sum t + max y` of these stages (PROBLEM.md section 4)."""
    times = [work.time for work in works]
    return weights[0] * max(times) + weights[1] * sum(times) + max(work.sync for work in works)


def difference(
    works: Sequence[StageWork], spans: Sequence[Span], orders: Orders, schedule: Schedule, micro_batches: int
) -> Difference:
    """By how much the replay and the closed form differ, and why.

    Args:
        works: what each stage has to do.
        spans: its passes, as replayed.
        orders: of passes.
        schedule: whose weights the closed form has.
        micro_batches: `M`.
    """
    stages = len(works)
    slowest, total = schedule.weights(micro_batches, stages)
    syncs = [work.sync for work in works]
    staggered = bool(getattr(schedule, "staggered", False))
    whole = batch_time(spans, syncs, staggered)
    pipeline = batch_time(spans, [0.0] * stages, staggered)
    longest = max(works, key=lambda work: work.time)
    form = slowest * longest.time + total * longest.time * stages
    mean = _uniform(longest, orders, staggered, alike=True)
    uniform = _uniform(longest, orders, staggered, alike=False) if longest.chunks > 1 else mean
    planned = slowest * longest.time + total * sum(work.time for work in works)
    return Difference(
        passes=_clean(mean - form, whole),
        chunks=_clean(uniform - mean, whole),
        stages=_clean(pipeline - planned - (uniform - form), whole),
        synchronisation=_clean(whole - pipeline - max(syncs), whole),
    )


def _uniform(work: StageWork, orders: Orders, staggered: bool, *, alike: bool) -> float:
    """Seconds of the pipeline where every stage has the passes of `work`, with `alike` the same in all its chunks."""
    times = {
        (kind, chunk): work.total(kind) / work.chunks if alike else work.seconds(kind, chunk)
        for kind, chunk in work.passes
    }
    spans = run(orders, work.chunks, lambda _, step: times[step.kind, step.chunk])
    return batch_time(spans, [0.0] * len(orders), staggered)


def _clean(seconds: float, whole: float) -> float:
    """0 for what is only rounding."""
    return 0.0 if abs(seconds) <= AGREEMENT * whole else seconds
