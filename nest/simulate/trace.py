"""Trace of a replay: JSON for Perfetto, in the format of Chromium's trace viewer.

The Trace Event Format (docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU): complete events (`X`),
flows (`s` and `f` with `bp: e`, inside slices), counters (`C`) and names (`M`); times in microseconds.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from attrs import frozen

from nest.instance import Pass
from nest.instance.schedule import Places
from nest.simulate.replay import Replay
from nest.simulate.stage_tasks import RECEIVES
from nest.simulate.timeline import Task, Timeline, sent

GRID = 8
"""Parts of a microsecond to which times are rounded. Eighths are exact floating-point numbers and whole nanoseconds, so
that consecutive slices never overlap, whether a viewer adds `ts` and `dur` or first converts them to nanoseconds.
Perfetto drops overlapping slices."""

STAGES, LINKS = 1, 2  # Processes of the trace: stages, and their links.

FIRST_THREAD = 100
"""First thread number, unique over all processes: Perfetto takes thread 0 for the kernel's idle one, and those that
share a number with a process for its main one."""

_WORDS = {
    "receive-activations": "receive activations",
    "receive-gradients": "receive gradients",
    "gather-weights": "gather weights",
    "reduce-gradients": "reduce gradients",
    "input-gradients": "backward, inputs",
    "weight-gradients": "backward, weights",
    "wait-for-port": "wait for a busy port",
}

_COLOURS = {
    "forward": "good",
    "backward": "thread_state_running",
    "input-gradients": "thread_state_running",
    "weight-gradients": "thread_state_runnable",
    "recompute": "bad",
    "update": "olive",
}
"""Names of colours in Chromium's viewer; Perfetto colours by name itself."""


@frozen
class _Slice:
    """A task on the grid: `start` and `length` in parts of a microsecond."""

    task: Task
    start: int
    length: int


def trace(replay: Replay) -> str:
    """Trace of a replay; of a disturbed one, its first run.

    A track for each stage, one for its messages in either direction, a memory counter for each stage, and arrows from
    the sending pass to the receiving one. Tasks shorter than 62 ns are left out.
    """
    timeline = replay.timeline if replay.disturbed is None else replay.disturbed.timeline
    stages = len(replay.stages)
    slices = [_slice(task) for task in timeline.tasks]
    slices = [each for each in slices if each.length]
    received = [each for each in slices if each.task.kind in RECEIVES]
    received += [each for each in (_slice(task) for task in timeline.hidden) if each.length]
    events = [
        *_names(stages, timeline.replica, sorted({_link(each.task, replay.places) for each in received})),
        *(_complete(each, STAGES, _of_stage(each.task.stage)) for each in slices),
        *_messages(received, replay.places),
        *_flows(slices, timeline, replay.places),
        *_counters(timeline),
    ]
    other = {"schedule": replay.schedule, "micro_batches": replay.micro_batches, "batch_time": replay.batch_time}
    document = {"displayTimeUnit": "ms", "otherData": other, "traceEvents": events}
    return json.dumps(document, separators=(",", ":"), allow_nan=False) + "\n"


def _grid(seconds: float) -> int:
    return round(seconds * 1e6 * GRID)


def _slice(task: Task) -> _Slice:
    start = _grid(task.start)
    return _Slice(task, start, _grid(task.end) - start)


def _complete(piece: _Slice, process: int, thread: int, name: str | None = None) -> dict[str, Any]:
    task = piece.task
    label = name or _WORDS.get(task.kind, task.kind)
    event = {
        "name": label if task.micro_batch is None else f"{label} {task.micro_batch}",
        "cat": task.kind,
        "ph": "X",
        "pid": process,
        "tid": thread,
        "ts": piece.start / GRID,
        "dur": piece.length / GRID,
        "args": {"stage": task.stage + 1, "micro_batch": task.micro_batch, "chunk": task.chunk},
    }
    if task.kind in _COLOURS:
        event["cname"] = _COLOURS[task.kind]
    return event


def _link(task: Task, places: Places) -> tuple[int, bool]:
    """Stage whose message a task receives, and whether it has gradients."""
    assert task.run is not None
    assert task.micro_batch is not None
    gradients = task.kind == "receive-gradients"
    place = places.place(task.stage, Pass(task.run, task.micro_batch, task.chunk))
    return places.device(place + (1 if gradients else -1), task.micro_batch), gradients


def _of_stage(stage: int) -> int:
    return FIRST_THREAD + stage + 1


def _of_link(stage: int, gradients: bool, stages: int) -> int:
    return FIRST_THREAD + stages + 2 * stage + gradients + 1


def _messages(received: Iterable[_Slice], places: Places) -> Iterator[dict[str, Any]]:
    """Received messages on the tracks of their links; of those at one time, the later part."""
    over: dict[tuple[int, bool], int] = {}
    for piece in sorted(received, key=lambda each: (each.start, each.length)):
        link, end = _link(piece.task, places), piece.start + piece.length
        start = max(piece.start, over.get(link, 0))
        if start < end:
            over[link] = end
            label = piece.task.kind.replace("receive-", "send ")
            event = _complete(_Slice(piece.task, start, end - start), LINKS, _of_link(*link, places.stages), label)
            event["args"] = {**event["args"], "stage": link[0] + 1, "to": piece.task.stage + 1}
            yield event


def _names(stages: int, replica: int, links: Sequence[tuple[int, bool]]) -> Iterator[dict[str, Any]]:
    yield _meta("process_name", STAGES, None, {"name": f"replica {replica}"})
    yield _meta("process_sort_index", STAGES, None, {"sort_index": STAGES})
    for stage in range(stages):
        yield _meta("thread_name", STAGES, _of_stage(stage), {"name": f"stage {stage + 1}"})
        yield _meta("thread_sort_index", STAGES, _of_stage(stage), {"sort_index": _of_stage(stage)})
    if links:
        yield _meta("process_name", LINKS, None, {"name": "links"})
        yield _meta("process_sort_index", LINKS, None, {"sort_index": LINKS})
    for stage, gradients in links:
        track = _of_link(stage, gradients, stages)
        label = f"stage {stage + 1} sends {'gradients' if gradients else 'activations'}"
        yield _meta("thread_name", LINKS, track, {"name": label})
        yield _meta("thread_sort_index", LINKS, track, {"sort_index": track})


def _meta(name: str, process: int, thread: int | None, args: dict[str, Any]) -> dict[str, Any]:
    track = {} if thread is None else {"tid": thread}
    return {"name": name, "ph": "M", "pid": process, **track, "args": args}


def _flows(slices: Sequence[_Slice], timeline: Timeline, places: Places) -> Iterator[dict[str, Any]]:
    """Arrows from the last task of each sending pass to the first of the reading pass."""
    passes: dict[tuple[int, str | None, int | None, int], list[_Slice]] = {}
    for each in slices:
        task = each.task
        passes.setdefault((task.stage, task.run, task.micro_batch, task.chunk), []).append(each)
    number = 0
    for span in timeline.spans:
        message = sent(span.run, span.stage, places)
        source = passes.get((span.stage, span.run.kind, span.run.micro_batch, span.run.chunk))
        if message is None or source is None:
            continue
        gradients, place, micro_batch = message
        chunk = places.chunks[places.route[place]].index(place)
        reader = (places.device(place, micro_batch), micro_batch, chunk)
        if reader[0] == span.stage:
            continue
        kinds = ("backward", "input-gradients") if gradients else ("forward",)
        target = next(
            (reading_span for kind in kinds if (reading_span := passes.get((reader[0], kind, *reader[1:])))), None
        )
        if target is None:
            continue
        number += 1
        last, first = source[-1], target[0]
        arrow = {"name": "gradients" if gradients else "activations", "cat": "message", "id": number, "pid": STAGES}
        out, into = last.start + last.length - 1, first.start + (first.length > 1)
        yield {**arrow, "ph": "s", "tid": _of_stage(span.stage), "ts": out / GRID}
        yield {**arrow, "ph": "f", "bp": "e", "tid": _of_stage(reader[0]), "ts": into / GRID}


def _counters(timeline: Timeline) -> Iterator[dict[str, Any]]:
    """Bytes of each stage over time."""
    for stage, points in enumerate(timeline.memory):
        for time, size in points:
            yield {
                "name": f"memory of stage {stage + 1}",
                "ph": "C",
                "pid": STAGES,
                "ts": _grid(time) / GRID,
                "args": {"bytes": size},
            }
