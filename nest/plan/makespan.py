"""Makespan of a plan: its passes in the order of its schedule (PROBLEM.md section 4, "Price and replay")."""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from nest.instance import Pass, Schedule
from nest.instance.schedule import FORWARD, PASSES, WEIGHT_GRADIENTS, Places, places_of
from nest.reuse import BoundedCache

MOST_REMEMBERED = 2**21  # Passes of all programs kept, of some 12 bytes each.


class Stuck(Exception):  # noqa: N818 - says what stages are
    """Stages that wait for one another; the text names one."""


class ChunkSeconds(NamedTuple):
    """Times of the passes of a chunk per micro-batch, seconds; messages count for the receiving stage."""

    forward: float  # With arriving messages and gathering of ZeRO 3.
    backward: float  # With returning gradients, gathering of ZeRO 3, recomputation, and scattering of ZeRO 2 and 3.
    weights: float  # Part of `backward` for weight gradients, with scattering.
    arriving: float  # Travel of activations while the stage works.
    returning: float  # Same for gradients.

    @property
    def of_kinds(self) -> tuple[float, float, float, float]:
        """Times of each of `PASSES`."""
        return self.forward, self.backward, self.backward - self.weights, self.weights

    @property
    def under_way(self) -> tuple[float, float, float, float]:
        """Travel of the messages awaited by each of `PASSES`."""
        return self.arriving, self.returning, self.returning, 0.0


class Program(NamedTuple):
    """Passes of a batch, each after those it waits for; overlapped ones are one entry."""

    devices: "array[int]"  # Of each entry.
    needs: "array[int]"  # Entry whose message it waits for, counted from 1; 0: none.
    steps: "array[int]"  # What it runs, `(stage * chunks + chunk) * 4` plus the place in `PASSES`.
    others: dict[int, tuple[int, int]]  # Of overlapped passes, what the second one waits for and runs, by entry.
    first: tuple[int, ...]  # First entry of each device.


def is_staggered(schedule: Schedule) -> bool:
    """True if a batch counts from each stage's own start to its own end."""
    return bool(getattr(schedule, "staggered", False))


def pipeline_length(schedule: Schedule, micro_batches: int, stages: Sequence[Sequence[ChunkSeconds]]) -> float:
    """Seconds from the first pass of a batch to the end of the last one.

    With independent optimizer steps (`staggered`), each device counts from its own first pass to its own last one.

    Args:
        schedule: with an order.
        micro_batches: `M`.
        stages: for each stage its chunks, in pipeline order.

    Raises:
        Stuck: the order lets a pass wait for a later one.
    """
    asked = schedule, len(stages), micro_batches
    program = _programs.of(asked, lambda: _compiled(*asked))
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
"""Index in `sent` of a pass's input, the pass, index of its output, and the overlapped pass."""


def _rows(device: int, order: Sequence[Pass], places: Places) -> list[Row]:
    """Passes of a device.

    `sent` has activations by receiving chunk, then gradients by sending chunk, each by micro-batch; nothing is sent
    before the first chunk and behind the last. Outputs without readers come last.
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
