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
    begun = [0.0] * len(stages)
    for device, need, step in zip(program.devices, program.needs, program.steps, strict=True):
        ready, length = ends[need] + travel[step], lengths[step]
        if others and len(ends) in others:
            need, step = others[len(ends)]
            ready, length = max(ready, ends[need] + travel[step]), length + lengths[step]
        start = clocks[device]
        if ready > start:
            start = ready
        if len(ends) == program.first[device]:
            begun[device] = start
        clocks[device] = end = start + length
        ends.append(end)
    staggered = is_staggered(schedule)
    return max(end - (begin if staggered else 0.0) for begin, end in zip(begun, clocks, strict=True))


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
    chunks = len(places.route) // stages
    devices, needs, steps = array("i"), array("i"), array("i")
    others: dict[int, tuple[int, int]] = {}
    first = [0] * stages
    sent: dict[tuple[bool, int, int], int] = {}
    done, moved = [0] * stages, True
    while moved:
        moved = False
        for device, order in enumerate(orders):
            while done[device] < len(order):
                pair = order[done[device] : done[device] + (2 if order[done[device]].overlapped else 1)]
                entries = [
                    _entry(each, places.mirrored(device, each.micro_batch), chunks, places, sent) for each in pair
                ]
                if any(need < 0 for need, _ in entries):
                    break
                devices.append(device)
                needs.append(entries[0][0])
                steps.append(entries[0][1])
                number = len(needs)
                if not done[device]:
                    first[device] = number
                if len(entries) > 1:
                    others[number] = entries[1]
                for each in pair:
                    if each.kind != WEIGHT_GRADIENTS:
                        sent[each.kind == FORWARD, places.place(device, each), each.micro_batch] = number
                done[device] += len(pair)
                moved = True
    stuck = next((device for device, order in enumerate(orders) if done[device] < len(order)), None)
    if stuck is not None:
        raise Stuck(f"stage {stuck + 1} waits for ever to begin its pass {done[stuck] + 1}")
    return Program(devices, needs, steps, others, tuple(first))


def _entry(
    step: Pass, stage: int, chunks: int, places: Places, sent: dict[tuple[bool, int, int], int]
) -> tuple[int, int]:
    """What a pass waits for, below 0 where that has not run yet, and what it runs."""
    place = places.chunks[stage][step.chunk]
    number = (stage * chunks + step.chunk) * len(PASSES) + PASSES.index(step.kind)
    if step.kind == FORWARD:
        return (sent.get((True, place - 1, step.micro_batch), -1) if place else 0), number
    behind = place + 1 < len(places.route) and step.kind != WEIGHT_GRADIENTS
    return (sent.get((False, place + 1, step.micro_batch), -1) if behind else 0), number
