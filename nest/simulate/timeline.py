"""The discrete events of a batch: passes in the order of the schedule, each as soon as it can; tasks and memory."""

import heapq
from collections.abc import Callable, Iterable, Sequence

from attrs import frozen

from nest.errors import InputError
from nest.hooks.guard import attribute
from nest.instance import OrderedSchedule, Pass, Schedule
from nest.instance.schedule import order_fault
from nest.plan.certificate import Stuck
from nest.simulate.work import StageWork

Points = tuple[tuple[float, float], ...]
"""Seconds from the beginning of the batch, and bytes from then on; of several at one time, the last."""

Orders = Sequence[Sequence[Pass]]
"""For each stage its passes, in order."""

Progress = Callable[[str, float], None]
"""Called with what is being done, and which share of it is."""

REPORT_EVERY = 4096
"""Passes between two reports of progress."""


@frozen
class Span:
    """A pass as it was run.

    Attributes:
        stage: from 0.
        run: the pass.
        start: seconds from the beginning of the batch.
        end: seconds.
    """

    stage: int
    run: Pass
    start: float
    end: float


@frozen
class Task:
    """A piece as it was run: what timelines draw.

    Attributes:
        stage: from 0.
        kind: of `Piece`.
        run: kind of the pass it is a piece of; None for what happens once per batch.
        micro_batch: from 0; None for what happens once per batch.
        chunk: of the stage, from 0.
        start: seconds from the beginning of the batch.
        end: seconds.
    """

    stage: int
    kind: str
    run: str | None
    micro_batch: int | None
    chunk: int
    start: float
    end: float


@frozen
class Timeline:
    """One replica's batch.

    Attributes:
        replica: from 0.
        spans: passes; on each stage in the order they were run.
        tasks: of these passes and of the optimizer step; on each stage in the order they were run.
        memory: for each stage, bytes over time.
        peaks: for each stage, the most bytes at any time.
    """

    replica: int
    spans: tuple[Span, ...]
    tasks: tuple[Task, ...]
    memory: tuple[Points, ...]
    peaks: tuple[float, ...]


def run(
    orders: Orders, chunks: int, seconds: Callable[[int, Pass], float], progress: Progress | None = None
) -> tuple[Span, ...]:
    """Every pass of a batch, in the order in which they start; one that others wait for stands before them.

    A stage runs one pass at a time. A forward pass waits for that of the chunk in front, a backward pass or its part
    for the gradients of inputs of the chunk behind. Messages wait until the stage that receives them is free, and are
    part of its pass (PROBLEM.md section 4: boundaries are charged to the stage that receives).

    Args:
        orders: for each stage its passes, in order.
        chunks: of each stage; chunk `c` of stage `i` of `s`, both from 0, has place `c s + i` in the pipeline.
        seconds: of a pass of a stage.
        progress: called now and then with how far it is.

    Raises:
        Stuck: a pass waits for one that comes after it.
    """
    stages, total = len(orders), sum(len(order) for order in orders)
    done = [0] * stages
    free = [0.0] * stages
    arrived: dict[tuple[bool, int, int], float] = {}
    ready: list[tuple[float, int]] = []
    awaited = [_awaited(order[0], stage, stages, chunks) if order else None for stage, order in enumerate(orders)]
    for stage, order in enumerate(orders):
        if order and awaited[stage] is None:
            heapq.heappush(ready, (0.0, stage))
    spans: list[Span] = []
    while ready:
        start, stage = heapq.heappop(ready)
        step = orders[stage][done[stage]]
        end = start + seconds(stage, step)
        spans.append(Span(stage, step, start, end))
        done[stage] += 1
        free[stage] = end
        message = sent(step, stage, stages, chunks)
        if message is not None:
            arrived[message] = end
            reader = message[1] % stages
            if awaited[reader] == message and reader != stage:
                heapq.heappush(ready, (max(free[reader], end), reader))
        if done[stage] < len(orders[stage]):
            need = awaited[stage] = _awaited(orders[stage][done[stage]], stage, stages, chunks)
            if need is None or need in arrived:
                heapq.heappush(ready, (end if need is None else max(end, arrived[need]), stage))
        else:
            awaited[stage] = None
        if progress is not None and len(spans) % REPORT_EVERY == 0:
            progress("replaying", len(spans) / total)
    if len(spans) < total:
        stage = next(index for index in range(stages) if done[index] < len(orders[index]))
        raise Stuck(f"stage {stage + 1} waits for ever to begin its pass {done[stage] + 1}")
    return tuple(spans)


def sent(step: Pass, stage: int, stages: int, chunks: int) -> tuple[bool, int, int] | None:
    """What a pass sends: whether gradients, the place that reads it, the micro-batch; None: nothing."""
    place = step.chunk * stages + stage
    if step.kind == "forward":
        return (False, place + 1, step.micro_batch) if place + 1 < stages * chunks else None
    return (True, place - 1, step.micro_batch) if step.kind != "weight-gradients" and place else None


def _awaited(step: Pass, stage: int, stages: int, chunks: int) -> tuple[bool, int, int] | None:
    """What a pass waits for, as `sent` names it; None: only for its own stage."""
    place = step.chunk * stages + stage
    if step.kind == "forward":
        return (False, place, step.micro_batch) if place else None
    behind = place + 1 < stages * chunks
    return (True, place, step.micro_batch) if step.kind != "weight-gradients" and behind else None


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


def timeline(works: Sequence[StageWork], spans: Sequence[Span]) -> Timeline:
    """Passes that run as planned, their tasks, and the optimizer step, which each stage begins after its last pass.

    All replicas are alike, so that the first stands for all.

    Args:
        works: what each stage has to do.
        spans: its passes.
    """
    tasks: list[Task] = []
    for span in spans:
        clock = span.start
        for piece in works[span.stage].passes[span.run.kind, span.run.chunk]:
            end = clock + piece.seconds
            tasks.append(Task(span.stage, piece.kind, span.run.kind, span.run.micro_batch, span.run.chunk, clock, end))
            clock = end
    for stage, (work, clock) in enumerate(zip(works, last_ends(spans, len(works)), strict=True)):
        for piece in work.optimizer_step:
            tasks.append(Task(stage, piece.kind, None, None, 0, clock, clock + piece.seconds))
            clock += piece.seconds
    return recorded(works, 0, spans, tasks)


def recorded(works: Sequence[StageWork], replica: int, spans: Sequence[Span], tasks: Sequence[Task]) -> Timeline:
    """Passes and tasks with the memory that follows from them."""
    over_time = [memory_over_time(work, own) for work, own in zip(works, of_stages(spans, len(works)), strict=True)]
    points, peaks = tuple(each for each, _ in over_time), tuple(peak for _, peak in over_time)
    return Timeline(replica, tuple(spans), tuple(tasks), points, peaks)


def of_stages(spans: Iterable[Span], stages: int) -> list[list[Span]]:
    """The passes of each stage."""
    spans_of_stages: list[list[Span]] = [[] for _ in range(stages)]
    for span in spans:
        spans_of_stages[span.stage].append(span)
    return spans_of_stages


def last_ends(spans: Iterable[Span], stages: int) -> list[float]:
    """When each stage ends its last pass."""
    ends = [0.0] * stages
    for span in spans:
        ends[span.stage] = max(ends[span.stage], span.end)
    return ends


def first_starts(spans: Iterable[Span], stages: int) -> list[float]:
    """When each stage starts its first pass."""
    starts = [float("inf")] * stages
    for span in spans:
        starts[span.stage] = min(starts[span.stage], span.start)
    return starts


def batch_time(spans: Sequence[Span], syncs: Sequence[float], staggered: bool) -> float:
    """Seconds from one batch to the next.

    A batch ends with the last optimizer step. Where steps do not wait for each other (`staggered`), the next
    batch follows on each stage as soon as all stages can keep that distance: that of the stage at work for longest.

    Args:
        spans: passes of a batch.
        syncs: seconds of gradient reduction and optimizer step of each stage.
        staggered: of the schedule.
    """
    ends = [end + sync for end, sync in zip(last_ends(spans, len(syncs)), syncs, strict=True)]
    if not staggered:
        return max(ends)
    return max(end - start for end, start in zip(ends, first_starts(spans, len(syncs)), strict=True))


def memory_over_time(work: StageWork, spans: Iterable[Span]) -> tuple[Points, float]:
    """Bytes of a stage over the batch, and the most there are at any time.

    A micro-batch is held from the start of its forward pass to the end of its backward pass, the gradients of weights
    included (docs/explanation/problem.md counts whole micro-batches, too).

    Args:
        work: of the stage.
        spans: the stage's passes, in order.
    """
    held = [0] * work.chunks
    points = [(0.0, work.resident)]
    peak = work.resident
    for span in spans:
        chunk = span.run.chunk
        held[chunk] += span.run.kind == "forward"
        running = _bytes(work, held) + work.transient[chunk]
        peak = max(peak, running)
        _add(points, span.start, running)
        held[chunk] -= span.run.kind in ("backward", "weight-gradients")
        _add(points, span.end, _bytes(work, held))
    return tuple(points), peak


def _bytes(work: StageWork, held: Sequence[int]) -> float:
    if not any(held):
        return work.resident
    saved = sum(count * size for count, size in zip(held, work.saved, strict=True))
    return work.resident + max(saved + work.first, 0.0)


def _add(points: list[tuple[float, float]], time: float, size: float) -> None:
    """A further point; what changes nothing is none, nor what lasts no time and is no peak."""
    before = points[-2][1] if len(points) > 1 else 0.0
    if points[-1][0] == time and points[-1][1] <= max(before, size):
        points.pop()
    if not points or points[-1][1] != size:
        points.append((time, size))
