"""Pipeline schedules: what `nest.instance.protocols.Schedule` promises (PROBLEM.md section 4)."""

from collections.abc import Callable, Sequence
from functools import partial
from math import isclose
from typing import Any

from nest.hooks.protocols import OrderedSchedule, Pass, Schedule
from nest.hooks.results import sound_in_flight, sound_weights
from nest.instance import chunks_of, weights_of
from nest.instance.schedule import BACKWARD, FORWARD, INPUT_GRADIENTS, WEIGHT_GRADIENTS, order_fault
from nest.plan.certificate import Stuck, batch_length, certify, equal_passes, is_staggered, longest_pipeline
from nest.testing.finding import Finding, Problems, Tally, unsteady
from nest.tolerances import AGREEMENT

MICRO_BATCHES = (1, 2, 3, 4, 8, 17)
STAGES = (1, 2, 3, 4, 8)
CHUNKS = (2, 4)


def check_schedule(schedule: Schedule) -> tuple[Finding, ...]:
    """Ask for the weights and the micro-batches in flight of pipelines of 1 to 8 stages."""
    tally = Tally()
    for count in MICRO_BATCHES:
        for stages in STAGES:
            _examine(tally, schedule, count, stages, f"{count} micro-batches, {stages} stages")
    with_chunks = getattr(schedule, "with_chunks", None)
    if with_chunks is not None:
        for chunks in CHUNKS:
            made: list[Any] = []
            if tally.run("it makes others of several chunks", f"{chunks} chunks", _chunked, with_chunks, chunks, made):
                _check_chunked(tally, made[0], chunks)
    return tally.findings()


def _chunked(with_chunks: Callable[[int], Any], chunks: int, made: list[Any]) -> Problems:
    other = with_chunks(chunks)
    made.append(other)
    if not isinstance(other, Schedule):
        yield f"`with_chunks` returned {type(other).__name__}, which is no schedule"
    elif getattr(other, "chunks", None) != chunks:
        yield f"the schedule made has {getattr(other, 'chunks', None)!r} chunks"


def _check_chunked(tally: Tally, schedule: Schedule, chunks: int) -> None:
    """Of several chunks, only pipelines whose stages divide the micro-batches are asked for (PROBLEM.md section 4)."""
    for count in MICRO_BATCHES:
        for stages in STAGES:
            if count % stages == 0:
                where = f"{chunks} chunks, {count} micro-batches, {stages} stages"
                _examine(tally, schedule, count, stages, where)


def _examine(tally: Tally, schedule: Schedule, count: int, stages: int, where: str) -> None:
    if not tally.run("weights are finite and not negative", where, _bad_weights, schedule, count, stages):
        return
    tally.run("it says the same every time", where, unsteady, partial(schedule.weights, count, stages))
    tally.run("a batch takes no less than its slowest stage", where, _too_fast, schedule, count, stages)
    if stages == 1:
        tally.run("one stage takes its micro-batches one by one", where, _one_stage, schedule, count)
    tally.run("from 1 to all micro-batches are in flight", where, _bad_in_flight, schedule, count, stages)
    if isinstance(schedule, OrderedSchedule) and tally.run(
        "its order can be run", where, _bad_order, schedule, count, stages
    ):
        if chunks_of(schedule) > 1 and count % stages:
            return  # No plan has several chunks then (PROBLEM.md section 4).
        tally.run("weights and counts are those of its order", where, _contradicted, schedule, count, stages)
        tally.run("unequal stages keep to the bound", where, _beyond_bound, schedule, count, stages)


def _bad_weights(schedule: Schedule, count: int, stages: int) -> None:
    sound_weights(schedule.weights(count, stages), count, stages)


def _too_fast(schedule: Schedule, count: int, stages: int) -> Problems:
    """`A max t + B sum t` is at least `M max t` for every division of work if it is for one stage that has it all."""
    weights = weights_of(schedule, count, stages)
    largest, total = weights.slowest, weights.forward
    if largest + total < count * (1 - AGREEMENT):
        yield (
            f"A + B is {largest + total:g}, so that a pipeline with nearly all its work in one stage would run {count} "
            "micro-batches through it in less time than they take"
        )


def _one_stage(schedule: Schedule, count: int) -> Problems:
    weights = weights_of(schedule, count, 1)
    largest, total = weights.slowest, weights.forward
    if not isclose(largest + total, count, rel_tol=AGREEMENT):
        yield f"A + B is {largest + total:g}, but one stage has nobody to wait for and runs {count} micro-batches"


def _bad_in_flight(schedule: Schedule, count: int, stages: int) -> None:
    for stage in range(1, stages + 1):
        sound_in_flight(schedule.in_flight(stage, stages, count), stage, stages, count)


def _bad_order(schedule: OrderedSchedule, count: int, stages: int) -> Problems:
    """Every stage runs what it must, and none waits for ever."""
    chunks = chunks_of(schedule)
    orders = _orders(schedule, count, stages)
    for stage, order in enumerate(orders, start=1):
        fault = order_fault(order, count, chunks)
        if fault is not None:
            yield f"stage {stage}: {fault}"
            return
    try:
        batch_length(orders, count, chunks, [equal_passes(chunks)] * stages, staggered=False)
    except Stuck as stuck:
        yield str(stuck)


def _contradicted(schedule: OrderedSchedule, count: int, stages: int) -> Problems:
    """What equal stages take, and what stages hold, in its order (PROBLEM.md section 4)."""
    for fault in certify(schedule, count, stages).faults:
        yield f"it {fault}"


UNEQUAL: tuple[tuple[str, Callable[[int, int], tuple[float, float]]], ...] = (
    ("the first stage is slow", lambda stage, stages: (3.0, 6.0) if stage == 0 else (1.0, 2.0)),
    ("the last stage is slow", lambda stage, stages: (3.0, 6.0) if stage == stages - 1 else (1.0, 2.0)),
    ("all work is in the middle", lambda stage, stages: (1.0, 2.0) if stage == stages // 2 else (0.0, 0.0)),
    ("every other stage is slow", lambda stage, stages: (1.0 + stage % 2, 2.0 + 2 * (stage % 2))),
    ("forward passes are in front, backward ones behind", lambda stage, stages: (stages - stage, stage + 1.0)),
)
"""Unequal stages, by seconds of a forward and a backward pass for a stage, from 0, of so many."""


def _beyond_bound(schedule: OrderedSchedule, count: int, stages: int) -> Problems:
    """Unequal stages take at least the work of the slowest, and at most what equal ones like the longest passes do."""
    chunks, orders = chunks_of(schedule), _orders(schedule, count, stages)
    staggered, weights = is_staggered(schedule), weights_of(schedule, count, stages)
    for case, seconds in UNEQUAL:
        times = [seconds(stage, stages) for stage in range(stages)]
        lengths = [_passes(forward / chunks, backward / chunks, chunks) for forward, backward in times]
        slowest = max(sum(each) for each in times)
        price = weights.slowest * slowest + weights.forward * sum(sum(each) for each in times)
        replayed = batch_length(orders, count, chunks, lengths, staggered)
        most = longest_pipeline(weights, orders, count, chunks, lengths, staggered)
        for what, length in (("its weights give", price), ("its order takes", replayed)):
            if not count * slowest * (1 - AGREEMENT) <= length <= most * (1 + AGREEMENT):
                yield (
                    f"where {case}, {what} {length:g}; any order whose equal stages take what its weights say is "
                    f"between {count * slowest:g} and {most:g}"
                )


def _passes(forward: float, backward: float, chunks: int) -> dict[tuple[str, int], float]:
    """Seconds of every kind of pass; the parts of a backward one are halves."""
    seconds = {FORWARD: forward, BACKWARD: backward, INPUT_GRADIENTS: backward / 2, WEIGHT_GRADIENTS: backward / 2}
    return {(kind, chunk): length for kind, length in seconds.items() for chunk in range(chunks)}


def _orders(schedule: OrderedSchedule, count: int, stages: int) -> list[Sequence[Pass]]:
    return [schedule.order(stage, stages, count) for stage in range(1, stages + 1)]
