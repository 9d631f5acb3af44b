"""Discrete events of a batch: passes in the order of the schedule, each as soon as possible; tasks and memory."""

import heapq
from collections.abc import Callable, Iterable, Sequence

from attrs import frozen

from nest.errors import InputError
from nest.hooks.calls import attribute
from nest.instance import OrderedSchedule, Pass, Schedule, chunks_of
from nest.instance.schedule import BACKWARD, FORWARD, INPUT_GRADIENTS, WEIGHT_GRADIENTS, Places, order_fault, runs
from nest.plan.certificate import Orders, Stuck
from nest.simulate.stage_tasks import StageWork

Points = tuple[tuple[float, float], ...]
"""Seconds from the start of the batch, and bytes from then on; of several at one time, the last counts."""

Message = tuple[bool, int, int]
"""Gradients or activations, the chunk of the pipeline that reads them, and the micro-batch."""

Progress = Callable[[str, float], None]  # Called with the current step and its share done.
REPORT_EVERY = 4096  # Passes between two reports of progress.


@frozen
class Span:
    """A pass as run."""

    stage: int  # Of its device, from 0.
    run: Pass  # The pass.
    start: float  # Seconds from the start of the batch.
    end: float  # Seconds.


@frozen
class Task:
    """A piece as run, for timelines.

    Attributes:
        stage: of its device, from 0.
        kind: of `Piece`.
        run: kind of its pass; None: once per batch.
        micro_batch: from 0; None: once per batch.
        chunk: of the stage, from 0.
        start: seconds from the start of the batch.
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
    """One replica's batch."""

    replica: int  # From 0.
    spans: tuple[Span, ...]  # Passes; on each stage in the order they were run.
    tasks: tuple[Task, ...]  # Of these passes and of the optimizer step; on each stage in the order they were run.
    hidden: tuple[Task, ...]  # Messages received while the stage did something else.
    memory: tuple[Points, ...]  # For each stage, bytes over time.
    peaks: tuple[float, ...]  # For each stage, most bytes at any time.


def run(
    orders: Orders,
    places: Places,
    seconds: Callable[[int, Pass], float],
    travel: Callable[[Message], float] = lambda _: 0.0,
    progress: Progress | None = None,
) -> tuple[Span, ...]:
    """Run every pass of a batch; returns them by start, awaited ones first.

    A device runs one pass at a time. A forward pass waits for the chunk before, a backward pass or its part for the
    input gradients of the chunk behind. Messages wait until the receiving stage is free, and are part of its pass
    (PROBLEM.md section 4: boundaries count for the receiving stage); their hidden part travels while the device works.
    Overlapped passes both wait for the inputs of either, and send once both are done; they are drawn one after the
    other.

    Args:
        orders: passes of each device, in order.
        places: of the passes in the pipeline.
        seconds: of a pass of a stage, on any device.
        travel: seconds that a message travels while its reader works.
        progress: called regularly with the share done.

    Raises:
        Stuck: a pass waits for a later one.
    """
    devices, total = len(orders), sum(len(order) for order in orders)
    work = [runs(order) for order in orders]
    done = [0] * devices
    free = [0.0] * devices
    arrived: dict[Message, float] = {}
    ready: list[tuple[float, int]] = []
    waiting: list[set[Message]] = [set() for _ in orders]
    spans: list[Span] = []

    def next_of(device: int) -> None:
        """Start a device's next passes, or let them wait."""
        if done[device] == len(work[device]):
            return
        needs = {need for step in work[device][done[device]] if (need := awaited(step, device, places)) is not None}
        waiting[device] = {need for need in needs if need not in arrived}
        if not waiting[device]:
            heapq.heappush(ready, (max([free[device], *(arrived[need] for need in needs)]), device))

    for device in range(devices):
        next_of(device)
    while ready:
        start, device = heapq.heappop(ready)
        together = work[device][done[device]]
        end = start
        for step in together:
            begin, end = end, end + seconds(places.mirrored(device, step.micro_batch), step)
            spans.append(Span(device, step, begin, end))
            if progress is not None and len(spans) % REPORT_EVERY == 0:
                progress("replaying", len(spans) / total)
        done[device] += 1
        free[device] = end
        readers = set()
        for step in together:
            message = sent(step, device, places)
            if message is not None:
                reader = places.device(*message[1:])
                arrived[message] = end + travel(message)
                if message in waiting[reader]:
                    readers.add(reader)
        for reader in sorted(readers):
            next_of(reader)
        next_of(device)
    if len(spans) < total:
        stage = next(index for index in range(devices) if done[index] < len(work[index]))
        raise Stuck(f"stage {stage + 1} waits for ever to begin its pass {done[stage] + 1}")
    return tuple(spans)


def under_way(works: Sequence[StageWork], message: Message, places: Places) -> float:
    """Seconds that a message travels while its reader works."""
    gradients, place, _ = message
    stage = places.route[place]
    kind = INPUT_GRADIENTS if gradients else FORWARD
    return works[stage].travel.get((kind, places.chunks[stage].index(place)), 0.0)


def sent(step: Pass, device: int, places: Places) -> Message | None:
    """Message sent by a pass of a device; None: none."""
    place = places.place(device, step)
    if step.kind == FORWARD:
        return (False, place + 1, step.micro_batch) if place + 1 < len(places.route) else None
    return (True, place - 1, step.micro_batch) if step.kind != WEIGHT_GRADIENTS and place else None


def awaited(step: Pass, device: int, places: Places) -> Message | None:
    """Message awaited by a pass of a device; None: it only waits for the device."""
    place = places.place(device, step)
    if step.kind == FORWARD:
        return (False, place, step.micro_batch) if place else None
    behind = place + 1 < len(places.route)
    return (True, place, step.micro_batch) if step.kind != WEIGHT_GRADIENTS and behind else None


def orders_of(schedule: Schedule, stages: int, micro_batches: int) -> tuple[tuple[Pass, ...], ...]:
    """Passes of each stage, in order.

    Raises:
        InputError: the schedule gives no order of passes.
        PluginError: a plug-in's schedule gives an invalid order.
    """
    if not isinstance(schedule, OrderedSchedule):
        raise InputError(
            f"the schedule {schedule.name!r} states no order of passes, so nest cannot simulate it; add `order` to "
            "the schedule (docs/reference/hooks.md)."
        )
    orders = tuple(tuple(schedule.order(stage, stages, micro_batches)) for stage in range(1, stages + 1))
    for stage, order in enumerate(orders, start=1):
        fault = order_fault(order, micro_batches, chunks_of(schedule))
        if fault is not None:
            attribute(schedule, f"gives stage {stage} of {stages} an invalid order: {fault}")
            raise AssertionError(f"{schedule.name}, stage {stage} of {stages}: {fault}")
    return orders


def timeline(works: Sequence[StageWork], spans: Sequence[Span], places: Places, staggered: bool) -> Timeline:
    """Passes run as planned, their tasks, and the optimizer steps, which begin after the last pass of all stages.

    All replicas are alike, so that the first represents all. With `staggered`, optimizer steps begin after the last
    pass of their own stage.
    """
    tasks: list[Task] = []
    for span in spans:
        clock, step = span.start, span.run
        for piece in works[places.mirrored(span.stage, step.micro_batch)].passes[step.kind, step.chunk]:
            end = clock + piece.seconds
            tasks.append(Task(span.stage, piece.kind, step.kind, step.micro_batch, step.chunk, clock, end))
            clock = end
    ends = {span.stage: span.end for span in spans}
    for stage, work in enumerate(works):
        clock = ends[stage] if staggered else max(ends.values())
        for piece in work.optimizer_step:
            tasks.append(Task(stage, piece.kind, None, None, 0, clock, clock + piece.seconds))
            clock += piece.seconds
    return recorded(works, 0, spans, tasks, places)


def recorded(
    works: Sequence[StageWork], replica: int, spans: Sequence[Span], tasks: Sequence[Task], places: Places
) -> Timeline:
    """Passes and tasks with the resulting memory, and hidden messages."""
    over_time = [
        memory_over_time(works, places, device, own) for device, own in enumerate(of_stages(spans, len(works)))
    ]
    points, peaks = tuple(each for each, _ in over_time), tuple(peak for _, peak in over_time)
    return Timeline(replica, tuple(spans), tuple(tasks), _hidden(works, spans, places), points, peaks)


def _hidden(works: Sequence[StageWork], spans: Sequence[Span], places: Places) -> tuple[Task, ...]:
    """Travel of messages while stages work, from when they are sent."""
    if not any(work.travel for work in works):
        return ()
    left: dict[Message, float] = {}
    for own in of_stages(spans, len(works)):
        for index, span in enumerate(own):
            message = sent(span.run, span.stage, places)
            if message is not None:
                left[message] = (own[index + 1] if span.run.overlapped else span).end
    tasks = []
    for span in spans:
        step, need = span.run, awaited(span.run, span.stage, places)
        seconds = 0.0 if need is None else under_way(works, need, places)
        if need is not None and seconds:
            kind = "receive-gradients" if need[0] else "receive-activations"
            start = left[need]
            tasks.append(Task(span.stage, kind, step.kind, step.micro_batch, step.chunk, start, start + seconds))
    return tuple(tasks)


def of_stages(spans: Iterable[Span], stages: int) -> list[list[Span]]:
    """Passes of each stage."""
    spans_of_stages: list[list[Span]] = [[] for _ in range(stages)]
    for span in spans:
        spans_of_stages[span.stage].append(span)
    return spans_of_stages


def makespan(spans: Sequence[Span], staggered: bool) -> float:
    """Seconds of the passes of a batch (PROBLEM.md section 4, "Price and replay").

    Args:
        spans: passes of a batch, those of each stage in order.
        staggered: of the schedule. Optimizer steps then do not wait for each other, and the next batch follows on each
            stage at the distance that all stages can keep: the time of the stage at work for longest.
    """
    ends = {span.stage: span.end for span in spans}
    begins = {span.stage: span.start for span in reversed(spans)} if staggered else dict.fromkeys(ends, 0.0)
    return max(end - begins[stage] for stage, end in ends.items())


def memory_over_time(
    works: Sequence[StageWork], places: Places, device: int, spans: Iterable[Span]
) -> tuple[Points, float]:
    """Bytes of a stage's device over the batch, and their peak.

    A micro-batch is held from the start of its forward pass to the end of its backward pass, with weight gradients
    (docs/explanation/problem.md also counts whole micro-batches). A device with two stages has the parameters of both,
    and half of each stage's transient memory.

    Args:
        works: of each stage.
        places: of the passes in the pipeline.
        spans: the device's passes, in order.
    """
    both = (works[device], works[places.stages - 1 - device] if places.copies == 2 else works[device])
    resident, first = (sum(each) / 2 for each in zip(*((work.resident, work.first) for work in both), strict=True))
    held = saved = 0.0
    points = [(0.0, resident)]
    peak = resident
    for span in spans:
        work = works[places.mirrored(device, span.run.micro_batch)]
        size = work.saved[span.run.chunk]
        if span.run.kind == FORWARD:
            held, saved = held + 1, saved + size
        running = resident + max(saved + first, 0.0) + work.transient[span.run.chunk]
        peak = max(peak, running)
        _add(points, span.start, running)
        if span.run.kind in (BACKWARD, WEIGHT_GRADIENTS):
            # Rounding must not leave anything of what none is held of.
            held, saved = held - 1, saved - size if held > 1 else 0.0
        _add(points, span.end, resident + max(saved + first, 0.0) if held else resident)
    return tuple(points), peak


def _add(points: list[tuple[float, float]], time: float, size: float) -> None:
    """Add a point, unless it changes nothing, or lasts no time and is no peak."""
    before = points[-2][1] if len(points) > 1 else 0.0
    if points[-1][0] == time and points[-1][1] <= max(before, size):
        points.pop()
    if not points or points[-1][1] != size:
        points.append((time, size))
