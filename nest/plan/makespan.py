"""The makespan of a plan: its passes in the order of its schedule (PROBLEM.md section 4, "Price and replay")."""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from nest.instance import Pass, Schedule
from nest.instance.schedule import FORWARD, PASSES, WEIGHT_GRADIENTS, Places, places_of
from nest.reuse import BoundedCache

MOST_REMEMBERED = 2**21
"""Passes of all programs that are kept, of some 12 bytes each."""


class Stuck(Exception):  # noqa: N818 - says what stages are
    """Stages that wait for one another; the text names one."""


class ChunkSeconds(NamedTuple):
    """What the passes of a chunk take per micro-batch, seconds; messages are charged to the stage that receives them.

    Attributes:
        forward: with what arrives and what ZeRO 3 gathers.
        backward: with gradients that return, what ZeRO 3 gathers, recomputation, and what ZeRO 2 and 3 scatter.
        weights: of `backward` the part that finds gradients of weights, what is scattered included.
        arriving: for which activations are under way beside what the stage does.
        returning: the same of gradients.
    """

    forward: float
    backward: float
    weights: float
    arriving: float
    returning: float

    @property
    def of_kinds(self) -> tuple[float, float, float, float]:
        """Of each of `PASSES`."""
        return self.forward, self.backward, self.backward - self.weights, self.weights

    @property
    def under_way(self) -> tuple[float, float, float, float]:
        """For which what a pass of each of `PASSES` waits for is under way."""
        return self.arriving, self.returning, self.returning, 0.0


class Program(NamedTuple):
    """The passes of a batch, each behind those that it waits for; what is overlapped is one entry.

    Attributes:
        devices: that runs each.
        needs: the entry whose message it waits for, counted from 1; 0: none.
        steps: what it runs, `(stage * chunks + chunk) * 4` and the place in `PASSES`.
        others: of overlapped passes what the second one waits for and runs, by entry.
        first: the first entry of each device.
    """

    devices: "array[int]"
    needs: "array[int]"
    steps: "array[int]"
    others: dict[int, tuple[int, int]]
    first: tuple[int, ...]


def is_staggered(schedule: Schedule) -> bool:
    """Whether a batch is counted from each stage's own beginning to its own end."""
    return bool(getattr(schedule, "staggered", False))


def pipeline_length(schedule: Schedule, micro_batches: int, stages: Sequence[Sequence[ChunkSeconds]]) -> float:
    """Seconds from the first pass of a batch to the end of the last one.

    Of a schedule whose optimizer steps wait for nobody (`staggered`), each device counts from its own first pass to its
    own last one.

    Args:
        schedule: with an order.
        micro_batches: `M`.
        stages: for each stage its chunks, in pipeline order.

    Raises:
        Stuck: the order lets a pass wait for one that comes after it.
    """
    program = _program(schedule, len(stages), micro_batches)
    lengths = [seconds for stage in stages for chunk in stage for seconds in chunk.of_kinds]
    travel = [seconds for stage in stages for chunk in stage for seconds in chunk.under_way]
    clocks, ends, others = [0.0] * len(stages), [0.0], program.others
    for device, need, step in zip(program.devices, program.needs, program.steps, strict=True):
        start, length = ends[need] + travel[step], lengths[step]
        if others and len(ends) in others:
            need, step = others[len(ends)]
            start, length = max(start, ends[need] + travel[step]), length + lengths[step]
        if start < clocks[device]:
            start = clocks[device]
        clocks[device] = end = start + length
        ends.append(end)
    if not is_staggered(schedule):
        return max(clocks)
    begun: list[float] = []
    for first in program.first:
        awaited = [(program.needs[first - 1], program.steps[first - 1]), *([others[first]] if first in others else ())]
        begun.append(max(ends[need] + travel[step] for need, step in awaited))
    return max(end - begin for begin, end in zip(begun, clocks, strict=True))


_programs = BoundedCache[Program](MOST_REMEMBERED, lambda program: len(program.needs))


def _program(schedule: Schedule, stages: int, micro_batches: int) -> Program:
    """The program of a schedule, kept while others leave it room."""
    return _programs.of((schedule, stages, micro_batches), lambda: _compiled(schedule, stages, micro_batches))


def _compiled(schedule: Schedule, stages: int, micro_batches: int) -> Program:
    orders: list[Sequence[Pass]] = [
        schedule.order(stage, stages, micro_batches)  # type: ignore[attr-defined]
        for stage in range(1, stages + 1)
    ]
    places = places_of(schedule, stages, micro_batches)
    rows, every = [_rows(device, order, places) for device, order in enumerate(orders)], len(places.route)
    # The entry that sends what each pass may wait for; 0: nothing is sent, below 0: it has not run yet.
    waits = [-1] * (every * micro_batches)
    sent = [0] * micro_batches + waits + waits + [0] * micro_batches + [0]
    devices, needs, steps = array("i"), array("i"), array("i")
    others: dict[int, tuple[int, int]] = {}
    first, done, moved = [0] * stages, [0] * stages, True
    while moved:
        moved = False
        for device, own in enumerate(rows):
            while done[device] < len(own):
                need, step, message, other = own[done[device]]
                if sent[need] < 0 or (other is not None and sent[other[0]] < 0):
                    break
                number = len(needs) + 1
                devices.append(device)
                needs.append(sent[need])
                steps.append(step)
                if not done[device]:
                    first[device] = number
                if other is not None:
                    others[number] = sent[other[0]], other[1]
                    sent[other[2]] = number
                sent[message] = number
                done[device] += 1
                moved = True
    stuck = next((device for device, own in enumerate(rows) if done[device] < len(own)), None)
    if stuck is not None:
        passes = sum(1 if other is None else 2 for *_, other in rows[stuck][: done[stuck]])
        raise Stuck(f"stage {stuck + 1} waits for ever to begin its pass {passes + 1}")
    return Program(devices, needs, steps, others, tuple(first))


Row = tuple[int, int, int, "Row | None"]
"""Where it stands in `sent` what a pass waits for, what it runs, where what it sends stands, and the pass beside it."""


def _rows(device: int, order: Sequence[Pass], places: Places) -> list[Row]:
    """The passes of a device.

    In `sent` come activations by the chunk that receives them, then gradients by the chunk that sends them, each by
    micro-batch; in front of the first chunk and behind the last one nothing is sent. What nobody waits for comes last.
    """
    every, batch = len(places.route), places.micro_batches
    chunks, gradients = every // places.stages, (every + 1) * batch
    kinds, rows = {kind: number for number, kind in enumerate(PASSES)}, list[Row]()
    for each in reversed(order):
        kind, micro_batch, chunk = each.kind, each.micro_batch, each.chunk
        stage = places.mirrored(device, micro_batch)
        step = (stage * chunks + chunk) * len(PASSES) + kinds[kind]
        forward = places.chunks[stage][chunk] * batch + micro_batch
        other = rows.pop() if each.overlapped and rows else None
        if kind == FORWARD:
            rows.append((forward, step, forward + batch, other))
        elif kind == WEIGHT_GRADIENTS:
            rows.append((0, step, 2 * gradients, other))
        else:
            rows.append((gradients + forward + batch, step, gradients + forward, other))
    return rows[::-1]
