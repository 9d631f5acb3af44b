"""Checks of pipeline schedules (`nest.instance.schedule.Schedule`, PROBLEM.md section 4)."""

from collections.abc import Callable, Sequence
from functools import partial
from math import isclose
from typing import Any

from nest.hooks.protocols import OrderedSchedule, Pass, Schedule
from nest.instance import admits, chunks_of, copies_of, least_held, route, weights_of
from nest.public.checks import (
    BACKWARD,
    FORWARD,
    INPUT_GRADIENTS,
    RAYS,
    WEIGHT_GRADIENTS,
    Stuck,
    batch_length,
    busiest,
    certify,
    equal_passes,
    highest_price,
    is_staggered,
    least_of_rays,
    longest_pipeline,
    order_fault,
    places_of,
    plain_weights,
    sound_in_flight,
    too_few_in_flight,
)
from nest.tolerances import AGREEMENT
from nest_testing.finding import Finding, Problems, Tally

MICRO_BATCHES = (1, 2, 3, 4, 8, 16, 17)
STAGES = (1, 2, 3, 4, 8)
CHUNKS = (2, 4)


def check_schedule(schedule: Schedule) -> tuple[Finding, ...]:
    """Check pipelines of 1 to 8 stages that the schedule admits: weights, micro-batches in flight, chunks, order."""
    tally = Tally()
    _check(tally, schedule, "")
    with_chunks = getattr(schedule, "with_chunks", None)
    for chunks in CHUNKS if with_chunks is not None else ():
        made: list[Any] = []
        if tally.run("it makes others of several chunks", f"{chunks} chunks", _chunked, with_chunks, chunks, made):
            _check(tally, made[0], f"{chunks} chunks, ")
    return tally.findings()


def _check(tally: Tally, schedule: Schedule, where: str) -> None:
    admitted = [(count, stages) for stages in STAGES for count in MICRO_BATCHES if admits(schedule, stages, count)]
    for stages in sorted({stages for _, stages in admitted}):
        tally.run("each stage has as many chunks", f"{where}{stages} stages", _bad_placement, schedule, stages)
    for count, stages in admitted:
        _examine(tally, schedule, count, stages, f"{where}{count} micro-batches, {stages} stages")
    tally.run("it admits some pipeline", where or "all", _admits_none, admitted)


def _admits_none(admitted: Sequence[tuple[int, int]]) -> Problems:
    if not admitted:
        yield (
            f"it admits none of {max(STAGES)} stages or fewer with {', '.join(map(str, MICRO_BATCHES))} micro-batches"
        )


def _bad_placement(schedule: Schedule, stages: int) -> Problems:
    chunks, homes = chunks_of(schedule), route(schedule, stages)
    if copies_of(schedule) not in (1, 2):
        yield f"a device holds {copies_of(schedule)} copies; there are one or two"
    if sorted(homes) != sorted(list(range(stages)) * chunks):
        places = ", ".join(str(stage + 1) for stage in homes)
        yield f"its chunks are on stages {places}; each of {stages} must have {chunks}"


def _chunked(with_chunks: Callable[[int], Any], chunks: int, made: list[Any]) -> Problems:
    other = with_chunks(chunks)
    made.append(other)
    if not isinstance(other, Schedule):
        yield f"`with_chunks` returned {type(other).__name__}, which is no schedule"
    elif getattr(other, "chunks", None) != chunks:
        yield f"the schedule made has {getattr(other, 'chunks', None)!r} chunks"


def _examine(tally: Tally, schedule: Schedule, count: int, stages: int, where: str) -> None:
    if not tally.run("weights are finite, and sums of them not negative", where, _bad_weights, schedule, count, stages):
        return
    tally.steady("it says the same every time", where, partial(schedule.weights, count, stages))
    tally.run("a batch takes no less than its slowest stage", where, _too_fast, schedule, count, stages)
    if stages == 1:
        tally.run("one stage takes its micro-batches one by one", where, _one_stage, schedule, count)
    tally.run("from 1 to all micro-batches are in flight", where, _bad_in_flight, schedule, count, stages)
    tally.run("enough are in flight for its weights", where, too_few_in_flight, schedule, count, stages)
    if hasattr(schedule, "least_held"):
        tally.run("it says what all chunks hold as in_flight has it", where, _least_otherwise, schedule, count, stages)
    if getattr(schedule, "fills", False):
        tally.run("it fills the chunks of its stages", where, _not_filled, schedule, count, stages)
    if isinstance(schedule, OrderedSchedule) and tally.run(
        "its order can be run", where, _bad_order, schedule, count, stages
    ):
        tally.run("weights and counts are those of its order", where, _contradicted, schedule, count, stages)
        tally.run("unequal stages keep to the bound", where, _beyond_bound, schedule, count, stages)


def _bad_weights(schedule: Schedule, count: int, stages: int) -> None:
    plain_weights(schedule.weights(count, stages))


def _too_fast(schedule: Schedule, count: int, stages: int) -> Problems:
    """Object if a batch takes less than `M max t`, for one stage with all work and so for every division."""
    for parts, least in zip(RAYS, least_of_rays(weights_of(schedule, count, stages)), strict=True):
        if least < count * (1 - AGREEMENT):
            yield (
                f"A + B is {least:g}{parts}, so that a pipeline with nearly all its work in one stage would run "
                f"{count} micro-batches through it in less time than they take"
            )
            return


def _one_stage(schedule: Schedule, count: int) -> Problems:
    for parts, alone in zip(RAYS, least_of_rays(weights_of(schedule, count, 1)), strict=True):
        if not isclose(alone, count, rel_tol=AGREEMENT):
            yield f"A + B is {alone:g}{parts}, but one stage has nobody to wait for and runs {count} micro-batches"
            return


def _bad_in_flight(schedule: Schedule, count: int, stages: int) -> None:
    for stage in range(1, stages + 1):
        sound_in_flight(schedule.in_flight(stage, stages, count), stage, stages, count)


def _not_filled(schedule: Schedule, count: int, stages: int) -> Problems:
    for stage, held in enumerate(least_held(schedule, stages, count, counted=True), start=1):
        if held < 1:
            yield f"`fills` is true, but stage {stage} never holds a micro-batch in each of its chunks"
            return


def _least_otherwise(schedule: Schedule, count: int, stages: int) -> Problems:
    """Object if `least_held` differs from `in_flight`'s result: more would exclude feasible plans."""
    said, follows = (least_held(schedule, stages, count, counted) for counted in (False, True))
    if said != follows:
        yield f"`least_held` is {said} for the stages, but from `in_flight` follows {follows}"


def _bad_order(schedule: OrderedSchedule, count: int, stages: int) -> Problems:
    """Object if a stage misses a pass, or waits for ever."""
    chunks = chunks_of(schedule)
    orders = _orders(schedule, count, stages)
    for stage, order in enumerate(orders, start=1):
        fault = order_fault(order, count, chunks)
        if fault is not None:
            yield f"stage {stage}: {fault}"
            return
    try:
        batch_length(orders, places_of(schedule, stages, count), [equal_passes(chunks)] * stages, staggered=False)
    except Stuck as stuck:
        yield str(stuck)


def _contradicted(schedule: OrderedSchedule, count: int, stages: int) -> Problems:
    """Object if its order contradicts the times and memory of equal stages (PROBLEM.md section 4)."""
    for fault in certify(schedule, count, stages).faults:
        yield f"it {fault}"


UNEQUAL: tuple[tuple[str, Callable[[int, int], tuple[float, float]]], ...] = (
    ("the first stage is slow", lambda stage, stages: (3.0, 6.0) if stage == 0 else (1.0, 2.0)),
    ("the last stage is slow", lambda stage, stages: (3.0, 6.0) if stage == stages - 1 else (1.0, 2.0)),
    ("all work is in the middle", lambda stage, stages: (1.0, 2.0) if stage == stages // 2 else (0.0, 0.0)),
    ("every other stage is slow", lambda stage, stages: (1.0 + stage % 2, 2.0 + 2 * (stage % 2))),
    ("forward passes are in front, backward ones behind", lambda stage, stages: (stages - stage, stage + 1.0)),
)
"""Unequal stages: seconds of a forward and a backward pass for a stage (from 0) of so many."""


def _beyond_bound(schedule: OrderedSchedule, count: int, stages: int) -> Problems:
    """Object if unequal stages take less than the busiest's work, or more than equal ones with the longest passes."""
    for case, seconds in UNEQUAL:
        parts = [seconds(stage, stages) for stage in range(stages)]
        for fault in beyond_bound(schedule, count, [(forward, back / 2, back / 2) for forward, back in parts]):
            yield f"where {case}, {fault}"


def beyond_bound(schedule: OrderedSchedule, count: int, parts: Sequence[tuple[float, float, float]]) -> Problems:
    """Return objections to times of unequal stages beyond the bound (docs/explanation/simulation.md, "The bound").

    Args:
        schedule: admits as many stages and micro-batches.
        count: micro-batches.
        parts: of each stage, seconds per micro-batch of forward passes, gradients of inputs and those of weights, which
            its chunks share evenly.
    """
    chunks, orders = chunks_of(schedule), _orders(schedule, count, len(parts))
    places = places_of(schedule, len(parts), count)
    staggered, weights = is_staggered(schedule), weights_of(schedule, count, len(parts))
    lengths = [_passes([part / chunks for part in each], chunks) for each in parts]
    slowest = max(map(sum, parts))
    price = weights.slowest * slowest + sum(weights.of_parts(*each) for each in parts)
    replayed = batch_length(orders, places, lengths, staggered)
    least, most = busiest(orders, places, lengths), longest_pipeline(weights, orders, places, lengths, staggered)
    highest = highest_price(weights, orders, places, lengths)
    bounds = (("its weights give", price, count * slowest, highest), ("its order takes", replayed, least, most))
    for what, length, lowest, longest in bounds:
        if not lowest * (1 - AGREEMENT) <= length <= longest * (1 + AGREEMENT):
            yield (
                f"{what} {length:g}; any order whose equal stages take what its weights say is between {lowest:g} and "
                f"{longest:g}"
            )


def _passes(parts: Sequence[float], chunks: int) -> dict[tuple[str, int], float]:
    forward, inputs, weights = parts
    seconds = {FORWARD: forward, BACKWARD: inputs + weights, INPUT_GRADIENTS: inputs, WEIGHT_GRADIENTS: weights}
    return {(kind, chunk): length for kind, length in seconds.items() for chunk in range(chunks)}


def _orders(schedule: OrderedSchedule, count: int, stages: int) -> list[Sequence[Pass]]:
    return [schedule.order(stage, stages, count) for stage in range(1, stages + 1)]
