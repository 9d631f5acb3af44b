"""Whether a schedule says the same thrice: by its weights, by what it counts in flight, and by its order of passes.

Solvers and pricing have `weights` and `in_flight` from one object, and `M` from one function: a mistake there is one of
all of them. This reads them again, from what the schedule tells to be run (docs/explanation/verify.md).
"""

from collections.abc import Mapping, Sequence
from math import isclose
from typing import Any

from attrs import evolve, frozen

from nest.instance import OrderedSchedule, Pass, Schedule, Weights, chunks_of, fullest_moments, in_flight, weights_of
from nest.instance.schedule import BACKWARD, FORWARD, INPUT_GRADIENTS, WEIGHT_GRADIENTS, order_fault
from nest.spec import PlanDocument, Training
from nest.tolerances import AGREEMENT

MOST = 2**19
"""Forward passes of a replica, over all stages and chunks, whose order is looked at: twice those of 4,096 micro-batches
on 64 stages, which take some 3 s."""

UNITS = {FORWARD: 1, BACKWARD: 2, INPUT_GRADIENTS: 1, WEIGHT_GRADIENTS: 1}
"""Lengths of passes of equal stages: a backward pass takes as long as two forward passes, in equal parts (matrix
products have twice the FLOP, arXiv 2401.10241, table 1). The only division for which every schedule need be exact."""

CYCLE = UNITS[FORWARD] + UNITS[BACKWARD]
"""Units in which a chunk runs a micro-batch forward and backward."""

Lengths = Sequence[Mapping[tuple[str, int], float]]
"""Seconds, or units, of the passes of each stage, by kind and chunk."""


class Stuck(Exception):  # noqa: N818 - says what stages are
    """Stages that wait for one another; the text names one."""


@frozen
class Certificate:
    """What became of `M`, `A`, `B` and counts in flight when they were found anew.

    Attributes:
        schedule: its name.
        micro_batches: `M`.
        stages: `s`.
        missing: why they could not be found; None: they were.
        equal_stages: what a batch takes on equal stages in the order of the schedule, over one stage's time: `A + B s`.
        in_flight: for each stage, the most micro-batches its order holds.
        faults: what contradicts them, each to follow the schedule's name.
    """

    schedule: str
    micro_batches: int
    stages: int
    missing: str | None = None
    equal_stages: float | None = None
    in_flight: tuple[float, ...] = ()
    faults: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """What a document states of it."""
        names = ("schedule", "micro_batches", "stages")
        fields = {"computed": self.missing is None, **{name: getattr(self, name) for name in names}}
        if self.missing is not None:
            return {**fields, "reason": self.missing}
        return {**fields, "equal_stages": self.equal_stages, "in_flight": list(self.in_flight)}


def certify_plan(plan: PlanDocument, schedule: Schedule, training: Training) -> Certificate:
    """The certificate of a plan's numbers: `M` from the batch (PROBLEM.md section 3), the rest from its order.

    Args:
        plan: feasible.
        schedule: its schedule, of as many chunks.
        training: of its problem, which says how large the batch is.
    """
    assert plan.candidate is not None
    assert plan.data_parallel is not None
    micro_batches, rest = divmod(training.global_batch, plan.data_parallel * plan.candidate.samples)
    faults = []
    if rest and not training.uneven_batch:
        faults.append(
            f"is given a batch of {training.global_batch}, which {plan.data_parallel} replicas with micro-batches of "
            f"{plan.candidate.samples} do not divide"
        )
    micro_batches += bool(rest)
    if plan.micro_batches != micro_batches:
        faults.append(f"is given {plan.micro_batches} micro-batches; by the batch they are {micro_batches}")
    certificate = certify(schedule, micro_batches, len(plan.stages))
    for number, (stage, held) in enumerate(zip(plan.stages, certificate.in_flight, strict=False), start=1):
        if not isclose(stage.in_flight, held, rel_tol=AGREEMENT):
            faults.append(f"is said to hold {stage.in_flight:g} micro-batches in stage {number}; by its order {held:g}")
    return evolve(certificate, faults=(*faults, *certificate.faults))


def certify(schedule: Schedule, micro_batches: int, stages: int) -> Certificate:
    """The certificate of a schedule: what equal stages take in its order, and what they hold.

    `A` and `B` apart do not follow from an order: that of `nest` is that of `1f1b`. What follows is `A + B s`, equal to
    the replay of equal stages, and `A + B` of at least `M`: one stage may have nearly all the work.
    """
    blank = Certificate(schedule.name, micro_batches, stages)
    chunks = chunks_of(schedule)
    if not isinstance(schedule, OrderedSchedule):
        return evolve(blank, missing="the schedule does not say in which order its stages work")
    if micro_batches * stages * chunks > MOST:
        passes = f"{micro_batches * stages * chunks} forward passes are more than {MOST}"
        return evolve(blank, missing=f"{passes}, so the order of the schedule was not looked at")
    orders = [schedule.order(stage, stages, micro_batches) for stage in range(1, stages + 1)]
    for stage, order in enumerate(orders, start=1):
        fault = order_fault(order, micro_batches, chunks)
        if fault is not None:
            return evolve(blank, faults=(f"gives stage {stage} of {stages} an order that is none: {fault}",))
    try:
        whole = batch_length(orders, micro_batches, chunks, [equal_passes(chunks)] * stages, is_staggered(schedule))
    except Stuck as stuck:
        return evolve(blank, faults=(f"orders passes so that {stuck}",))
    equal_stages = whole / (CYCLE * chunks)
    held = tuple(most_held(order) / chunks for order in orders)
    faults = (*_time_faults(schedule, micro_batches, stages, equal_stages), *_count_faults(schedule, blank, held))
    return evolve(blank, equal_stages=equal_stages, in_flight=held, faults=faults)


def _time_faults(schedule: Schedule, micro_batches: int, stages: int, equal_stages: float) -> list[str]:
    weights = weights_of(schedule, micro_batches, stages)
    largest, total = weights.slowest, weights.forward
    counts = f"({micro_batches} micro-batches, {stages} stages)"
    faults = []
    if not isclose(largest + total * stages, equal_stages, rel_tol=AGREEMENT):
        faults.append(
            f"prices equal stages at {largest + total * stages:g} times the time of one (A + B s), but its order takes "
            f"{equal_stages:g} {counts}"
        )
    if largest + total < micro_batches * (1 - AGREEMENT):
        faults.append(
            f"prices a pipeline with all its work in one stage at {largest + total:g} times the time of that (A + B), "
            f"but it has {micro_batches} micro-batches to run {counts}"
        )
    return faults


def _count_faults(schedule: Schedule, blank: Certificate, held: Sequence[float]) -> list[str]:
    faults = []
    for stage, most in enumerate(held, start=1):
        counted = in_flight(fullest_moments(schedule, stage, blank.stages, blank.micro_batches))
        if not isclose(counted, most, rel_tol=AGREEMENT):
            faults.append(
                f"counts {counted:g} micro-batches in flight in stage {stage} of {blank.stages}, but its order holds "
                f"{most:g} ({blank.micro_batches} micro-batches)"
            )
    return faults


def equal_passes(chunks: int) -> dict[tuple[str, int], float]:
    """Lengths of the passes of a stage like all others, of so many chunks, in units."""
    return {(kind, chunk): unit for kind, unit in UNITS.items() for chunk in range(chunks)}


def is_staggered(schedule: Schedule) -> bool:
    """Whether a batch is counted from each stage's own beginning to its own end."""
    return bool(getattr(schedule, "staggered", False))


def most_held(order: Sequence[Pass]) -> int:
    """Chunks of micro-batches that a stage holds at its fullest: from a forward pass to the end of the backward one."""
    now = most = 0
    for step in order:
        if step.kind == FORWARD:
            now += 1
            most = max(most, now)
        elif step.kind != INPUT_GRADIENTS:
            now -= 1
    return most


def batch_length(
    orders: Sequence[Sequence[Pass]], micro_batches: int, chunks: int, lengths: Lengths, staggered: bool
) -> float:
    """What the passes of a batch take, each run as soon as its stage is free and what it needs is there.

    Args:
        orders: of each stage, its passes.
        micro_batches: `M`.
        chunks: of each stage; chunk `j` of stage `i` of `s` is the pipeline's run of layers `j s + i`, from 0.
        lengths: of passes.
        staggered: whether to count each stage from its first pass to its last, rather than all from the first one.

    Raises:
        Stuck: stages wait for one another.
    """
    stages = len(orders)
    last = stages * chunks - 1
    forward: list[list[float | None]] = [[None] * micro_batches for _ in range(last + 1)]
    gradients: list[list[float | None]] = [[None] * micro_batches for _ in range(last + 1)]
    begun = [0.0] * stages
    clocks = [0.0] * stages
    done = [0] * stages
    moved = True
    while moved:
        moved = False
        for stage, order in enumerate(orders):
            clock, own = clocks[stage], lengths[stage]
            first = position = done[stage]
            while position < len(order):
                step = order[position]
                kind, place = step.kind, step.chunk * stages + stage
                ready: float | None = clock
                if kind == FORWARD:
                    if place:
                        ready = forward[place - 1][step.micro_batch]
                elif kind != WEIGHT_GRADIENTS and place < last:
                    ready = gradients[place + 1][step.micro_batch]
                if ready is None:
                    break
                start = max(ready, clock)
                clock = start + own[kind, step.chunk]
                if kind == FORWARD:
                    forward[place][step.micro_batch] = clock
                elif kind != WEIGHT_GRADIENTS:
                    gradients[place][step.micro_batch] = clock
                if not position:
                    begun[stage] = start
                position += 1
            if position > first:
                clocks[stage], done[stage], moved = clock, position, True
    stuck = next((stage for stage, order in enumerate(orders) if done[stage] < len(order)), None)
    if stuck is not None:
        raise Stuck(f"stage {stuck + 1} waits for ever to begin its pass {done[stuck] + 1}")
    return max(end - (begin if staggered else 0.0) for begin, end in zip(begun, clocks, strict=True))


def longest_pipeline(
    weights: Weights,
    orders: Sequence[Sequence[Pass]],
    micro_batches: int,
    chunks: int,
    lengths: Lengths,
    staggered: bool,
) -> float:
    """The most that passes may take in the order of a schedule whose weights hold for equal stages, seconds.

    `(A + B s) v 3 u`, where `u` is the longest of its forward passes, half backward passes, and parts of those: equal
    stages whose passes take `u`, `2 u`, `u` and `u` take exactly that, and no pass ends later because another one is
    shorter. Where stages are counted from their own beginnings, which may then be earlier, all begin with the first.
    """
    kinds = {step.kind for order in orders for step in order}
    unit = max(seconds / UNITS[kind] for stage in lengths for (kind, _), seconds in stage.items() if kind in kinds)
    earlier = 0.0
    if staggered:
        equal = [equal_passes(chunks)] * len(orders)
        together, apart = (batch_length(orders, micro_batches, chunks, equal, each) for each in (False, True))
        earlier = together - apart
    return unit * ((weights.slowest + weights.forward * len(orders)) * chunks * CYCLE + earlier)
