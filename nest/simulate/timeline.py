"""From passes to tasks, to the end of the batch, and to memory over time."""

from collections.abc import Iterable, Sequence

from nest.simulate.records import Points, Span, StageWork, Task, Timeline


def timeline(works: Sequence[StageWork], spans: Sequence[Span], replica: int = 0) -> Timeline:
    """Passes that run as planned, their tasks, and the synchronisation, which each stage begins after its last pass.

    Args:
        works: what each stage has to do.
        spans: its passes.
        replica: whose they are.
    """
    tasks: list[Task] = []
    for span in spans:
        clock = span.start
        for piece in works[span.stage].passes[span.run.kind, span.run.chunk]:
            end = clock + piece.seconds
            tasks.append(Task(span.stage, piece.kind, span.run.kind, span.run.micro_batch, span.run.chunk, clock, end))
            clock = end
    for stage, (work, clock) in enumerate(zip(works, last_ends(spans, len(works)), strict=True)):
        for piece in work.synchronisation:
            tasks.append(Task(stage, piece.kind, None, None, 0, clock, clock + piece.seconds))
            clock += piece.seconds
    return recorded(works, replica, spans, tasks)


def recorded(works: Sequence[StageWork], replica: int, spans: Sequence[Span], tasks: Sequence[Task]) -> Timeline:
    """Passes and tasks with the memory that follows from them."""
    told = [memory_over_time(work, own) for work, own in zip(works, of_stages(spans, len(works)), strict=True)]
    points, peaks = tuple(each for each, _ in told), tuple(peak for _, peak in told)
    return Timeline(replica, tuple(spans), tuple(tasks), points, peaks)


def of_stages(spans: Iterable[Span], stages: int) -> list[list[Span]]:
    """The passes of each stage."""
    found: list[list[Span]] = [[] for _ in range(stages)]
    for span in spans:
        found[span.stage].append(span)
    return found


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

    A batch ends when the last stage has synchronised. Where steps do not wait for each other (`staggered`), the next
    batch follows on each stage as soon as all stages can keep that distance: that of the stage at work for longest.

    Args:
        spans: passes of a batch.
        syncs: seconds of synchronisation of each stage.
        staggered: of the schedule.
    """
    ends = [end + sync for end, sync in zip(last_ends(spans, len(syncs)), syncs, strict=True)]
    if not staggered:
        return max(ends)
    return max(end - start for end, start in zip(ends, first_starts(spans, len(syncs)), strict=True))


def memory_over_time(work: StageWork, spans: Iterable[Span]) -> tuple[Points, float]:
    """Bytes of a stage over the batch, and the most there are at any time.

    A micro-batch is kept from the start of its forward pass to the end of its backward pass, the gradients of weights
    included (docs/explanation/problem.md counts whole micro-batches, too).

    Args:
        work: of the stage.
        spans: the stage's passes, in order.
    """
    held = [0] * work.chunks
    points = [(0.0, work.standing)]
    peak = work.standing
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
        return work.standing
    kept = sum(count * size for count, size in zip(held, work.kept, strict=True))
    return work.standing + max(kept + work.first, 0.0)


def _add(points: list[tuple[float, float]], time: float, size: float) -> None:
    """A further point; what changes nothing is none, nor what lasts no time and is no peak."""
    before = points[-2][1] if len(points) > 1 else 0.0
    if points[-1][0] == time and points[-1][1] <= max(before, size):
        points.pop()
    if not points or points[-1][1] != size:
        points.append((time, size))
