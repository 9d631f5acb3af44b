"""Pipeline schedules: what `nest.instance.protocols.Schedule` promises (PROBLEM.md section 4)."""

from collections.abc import Callable, Sequence
from math import isclose, isfinite
from typing import Any

from nest.hooks.protocols import OrderedSchedule, Pass, Schedule
from nest.instance import chunks_of
from nest.instance.passes import order_fault
from nest.testing.finding import Finding, Problems, Tally
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
    tally.run("it says the same every time", where, _unsteady, schedule, count, stages)
    tally.run("a batch takes no less than its slowest stage", where, _too_fast, schedule, count, stages)
    if stages == 1:
        tally.run("one stage takes its micro-batches one by one", where, _one_stage, schedule, count)
    tally.run("from 1 to all micro-batches are in flight", where, _bad_in_flight, schedule, count, stages)
    if isinstance(schedule, OrderedSchedule):
        tally.run("its order can be run", where, _bad_order, schedule, count, stages)


def _bad_weights(schedule: Schedule, count: int, stages: int) -> Problems:
    weights: Any = tuple(schedule.weights(count, stages))
    if len(weights) != 2:
        yield f"`weights` returned {len(weights)} numbers; they are two, A and B"
    for name, weight in zip("AB", weights, strict=False):
        if not isinstance(weight, int | float) or not isfinite(weight) or weight < 0:
            yield f"{name} is {weight!r}"


def _unsteady(schedule: Schedule, count: int, stages: int) -> Problems:
    if schedule.weights(count, stages) != schedule.weights(count, stages):
        yield "`weights` asked twice gives two answers"


def _too_fast(schedule: Schedule, count: int, stages: int) -> Problems:
    """`A max t + B sum t` is at least `M max t` for every division of work if it is for one stage that has it all."""
    largest, total = schedule.weights(count, stages)
    if largest + total < count * (1 - AGREEMENT):
        yield (
            f"A + B is {largest + total:g}, so that a pipeline with nearly all its work in one stage would run {count} "
            "micro-batches through it in less time than they take"
        )


def _one_stage(schedule: Schedule, count: int) -> Problems:
    largest, total = schedule.weights(count, 1)
    if not isclose(largest + total, count, rel_tol=AGREEMENT):
        yield f"A + B is {largest + total:g}, but one stage has nobody to wait for and runs {count} micro-batches"


def _bad_in_flight(schedule: Schedule, count: int, stages: int) -> Problems:
    for stage in range(1, stages + 1):
        held = schedule.in_flight(stage, stages, count)
        if isinstance(held, bool) or not isinstance(held, int | float) or not 1 <= held <= count:
            yield f"stage {stage} holds {held!r} micro-batches; it is a number from 1 to {count}"


def _bad_order(schedule: OrderedSchedule, count: int, stages: int) -> Problems:
    """Every stage runs what it must, holds no more than the schedule says, and none waits for ever."""
    chunks = chunks_of(schedule)
    orders = [list(schedule.order(stage, stages, count)) for stage in range(1, stages + 1)]
    for stage, order in enumerate(orders, start=1):
        fault = order_fault(order, count, chunks)
        if fault is not None:
            yield f"stage {stage}: {fault}"
            return
        now = most = 0
        for step in order:
            now += (step.kind == "forward") - (step.kind in ("backward", "weight-gradients"))
            most = max(most, now)
        told = schedule.in_flight(stage, stages, count)
        if most > told * chunks * (1 + AGREEMENT):
            yield f"stage {stage} holds {most / chunks:g} micro-batches in its order, but {told:g} by `in_flight`"
    stuck = _stuck(orders, chunks)
    if stuck is not None:
        yield f"stage {stuck + 1} waits for ever for another one"


def _stuck(orders: Sequence[Sequence[Pass]], chunks: int) -> int | None:
    """The first stage that cannot run all its passes, from 0; None: all can."""
    stages, last = len(orders), len(orders) * chunks - 1
    done = [0] * stages
    ran: set[tuple[bool, int, int]] = set()
    moved = True
    while moved:
        moved = False
        for stage, order in enumerate(orders):
            while done[stage] < len(order):
                step = order[done[stage]]
                place, back = step.chunk * stages + stage, step.kind != "forward"
                first = place == (last if back else 0)
                before = (back, place + 1 if back else place - 1, step.micro_batch)
                if step.kind != "weight-gradients" and not first and before not in ran:
                    break
                ran.add((back, place, step.micro_batch))
                done[stage] += 1
                moved = True
    return next((stage for stage in range(stages) if done[stage] < len(orders[stage])), None)
