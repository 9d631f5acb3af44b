"""Pipeline schedules: what `nest.instance.protocols.Schedule` promises (PROBLEM.md section 4)."""

from math import isclose, isfinite
from typing import Any

from nest.hooks.protocols import Schedule
from nest.testing.conservation import ROUNDING
from nest.testing.finding import Finding, Problems, Tally

MICRO_BATCHES = (1, 2, 3, 4, 8, 17)
STAGES = (1, 2, 3, 4, 8)


def check_schedule(schedule: Schedule) -> tuple[Finding, ...]:
    """Ask for the weights and the micro-batches in flight of pipelines of 1 to 8 stages."""
    tally = Tally()
    for count in MICRO_BATCHES:
        for stages in STAGES:
            where = f"{count} micro-batches, {stages} stages"
            if not tally.run("weights are finite and not negative", where, _bad_weights, schedule, count, stages):
                continue
            tally.run("it says the same every time", where, _unsteady, schedule, count, stages)
            tally.run("a batch takes no less than its slowest stage", where, _too_fast, schedule, count, stages)
            if stages == 1:
                tally.run("one stage takes its micro-batches one by one", where, _one_stage, schedule, count)
            tally.run("from 1 to all micro-batches are in flight", where, _bad_in_flight, schedule, count, stages)
    return tally.findings()


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
    if largest + total < count * (1 - ROUNDING):
        yield (
            f"A + B is {largest + total:g}, so that a pipeline with nearly all its work in one stage would run {count} "
            "micro-batches through it in less time than they take"
        )


def _one_stage(schedule: Schedule, count: int) -> Problems:
    largest, total = schedule.weights(count, 1)
    if not isclose(largest + total, count, rel_tol=ROUNDING):
        yield f"A + B is {largest + total:g}, but one stage has nobody to wait for and runs {count} micro-batches"


def _bad_in_flight(schedule: Schedule, count: int, stages: int) -> Problems:
    for stage in range(1, stages + 1):
        held = schedule.in_flight(stage, stages, count)
        if isinstance(held, bool) or not isinstance(held, int | float) or not 1 <= held <= count:
            yield f"stage {stage} holds {held!r} micro-batches; it is a number from 1 to {count}"
