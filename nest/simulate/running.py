"""The discrete events: every stage runs its passes in the order of its schedule, each as soon as it can."""

import heapq
from collections.abc import Callable, Sequence

from nest.instance import Pass
from nest.simulate.records import Span

Orders = Sequence[Sequence[Pass]]
"""For each stage its passes, in order."""

Progress = Callable[[str, float], None]
"""Told what is being done, and which share of it is."""

TOLD_EVERY = 4096
"""Passes between two tellings of progress."""


class Stuck(Exception):  # noqa: N818 - says what is, and is always caught
    """Passes wait for each other for ever; the argument says which stage waits for what."""


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
        progress: told how far it is.

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
        if progress is not None and len(spans) % TOLD_EVERY == 0:
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
