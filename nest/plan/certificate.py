"""Consistency of a schedule's weights, counts in flight and order of passes.

Solvers and pricing read `weights` and `in_flight` from one object, and `M` from one function: an error there affects
all of them. This module derives them again from the order of passes (docs/explanation/verify.md).
"""

from collections.abc import Iterator, Mapping, Sequence
from math import isclose
from typing import Any

from attrs import evolve, frozen

from nest.instance import (
    OrderedSchedule,
    Pass,
    Schedule,
    Weights,
    chunks_of,
    copies_of,
    fullest_moments,
    in_flight,
    weights_of,
)
from nest.instance.schedule import (
    BACKWARD,
    FORWARD,
    INPUT_GRADIENTS,
    WEIGHT_GRADIENTS,
    Places,
    moments_of_order,
    order_fault,
    places_of,
)
from nest.plan.makespan import Stuck as Stuck
from nest.plan.makespan import is_staggered as is_staggered
from nest.spec import PlanDocument, Training
from nest.tolerances import AGREEMENT

MOST = 2**19
"""Most forward passes of a replica, over all stages and chunks, whose order is examined: twice those of 4,096
micro-batches on 64 stages, which take some 3 s."""

UNITS = {FORWARD: 1, BACKWARD: 2, INPUT_GRADIENTS: 1, WEIGHT_GRADIENTS: 1}
"""Lengths of passes of equal stages: a backward pass takes as long as two forward passes, in equal parts (matrix
products have twice the FLOP, arXiv 2401.10241, table 1). Schedules must only be exact for this division."""

CYCLE = UNITS[FORWARD] + UNITS[BACKWARD]  # Units of a micro-batch's forward and backward pass through a chunk.

Lengths = Sequence[Mapping[tuple[str, int], float]]
"""Seconds, or units, of the passes of each stage, by kind and chunk."""

Orders = Sequence[Sequence[Pass]]  # Passes of each device in order.


@frozen
class Certificate:
    """Result of deriving `M`, `A`, `B` and counts in flight again."""

    schedule: str  # Its name.
    micro_batches: int  # `M`.
    stages: int  # `s`.
    missing: str | None = None  # Reason if they could not be derived; else None.
    # Time of a batch on equal stages in the schedule's order, over one stage's time: `A + B s`.
    equal_stages: float | None = None
    in_flight: tuple[float, ...] = ()  # Most micro-batches that each stage holds in the order.
    faults: tuple[str, ...] = ()  # Contradictions, each following the schedule's name.

    def to_dict(self) -> dict[str, Any]:
        """Convert to an entry of a document."""
        names = ("schedule", "micro_batches", "stages")
        fields = {"computed": self.missing is None, **{name: getattr(self, name) for name in names}}
        if self.missing is not None:
            return {**fields, "reason": self.missing}
        return {**fields, "equal_stages": self.equal_stages, "in_flight": list(self.in_flight)}


def certify_plan(plan: PlanDocument, schedule: Schedule, training: Training) -> Certificate:
    """Certify a plan: `M` from the batch (PROBLEM.md section 3), the rest from its order.

    Args:
        plan: feasible.
        schedule: of the plan, with as many chunks.
        training: has the batch size.
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
            faults.append(
                f"has {stage.in_flight:g} micro-batches in flight in stage {number}, but its order gives {held:g}"
            )
    return evolve(certificate, faults=(*faults, *certificate.faults))


def certify(schedule: Schedule, micro_batches: int, stages: int) -> Certificate:
    """Certify a schedule: time of equal stages in its order, and what they hold.

    `A` and `B` separately do not follow from an order: `nest` and `1f1b` share theirs. What follows is `A + B s`,
    equal to the replay of equal stages, and `A + B` of at least `M`: one stage may have nearly all the work.
    """
    blank = Certificate(schedule.name, micro_batches, stages)
    chunks = chunks_of(schedule)
    if not isinstance(schedule, OrderedSchedule):
        missing = "the schedule states no order of passes"
        return evolve(blank, missing=missing, faults=tuple(too_few_in_flight(schedule, micro_batches, stages)))
    if micro_batches * stages * chunks > MOST:
        passes = f"{micro_batches * stages * chunks} forward passes are more than {MOST}"
        return evolve(blank, missing=f"{passes}, too many to simulate")
    orders = [schedule.order(stage, stages, micro_batches) for stage in range(1, stages + 1)]
    for stage, order in enumerate(orders, start=1):
        fault = order_fault(order, micro_batches, chunks)
        if fault is not None:
            return evolve(blank, faults=(f"gives stage {stage} of {stages} an invalid order: {fault}",))
    try:
        places = places_of(schedule, stages, micro_batches)
        whole = batch_length(orders, places, [equal_passes(chunks)] * stages, is_staggered(schedule))
    except Stuck as stuck:
        return evolve(blank, faults=(f"orders passes so that {stuck}",))
    equal_stages = whole / (CYCLE * chunks)
    held = tuple(in_flight(moments_of_order(order, chunks)) for order in orders)
    faults = (*_time_faults(schedule, micro_batches, stages, equal_stages), *_count_faults(schedule, blank, orders))
    return evolve(blank, equal_stages=equal_stages, in_flight=held, faults=faults)


def _time_faults(schedule: Schedule, micro_batches: int, stages: int, equal_stages: float) -> list[str]:
    weights = weights_of(schedule, micro_batches, stages)
    priced = equal_stages_take(weights, stages)
    counts = f"({micro_batches} micro-batches, {stages} stages)"
    faults = []
    if not isclose(priced, equal_stages, rel_tol=AGREEMENT):
        faults.append(
            f"prices equal stages at {priced:g} times the time of one (A + B s), but its order takes "
            f"{equal_stages:g} {counts}"
        )
    for parts, least in zip(RAYS, least_of_rays(weights), strict=True):
        if least < micro_batches * (1 - AGREEMENT):
            faults.append(
                f"prices a pipeline with all its work in one stage at {least:g} times the time of that (A + B{parts}), "
                f"but it has {micro_batches} micro-batches to run {counts}"
            )
            break
    return faults


RAYS = {
    ", all of it forward passes": (1.0, 0.0, 0.0),
    ", all of it gradients of inputs": (0.0, 1.0, 0.0),
    ", half gradients of inputs, half of weights": (0.0, 0.5, 0.5),
}
"""Extreme parts of a stage's time, whose sums give all others: weight gradients take no longer than input gradients."""


def least_of_rays(weights: Weights) -> tuple[float, ...]:
    """Step time over a stage's time if one stage has all work, for each of `RAYS`: `A` and a part of the sum."""
    return tuple(weights.slowest + float(weights.of_parts(*parts)) for parts in RAYS.values())


def _count_faults(schedule: Schedule, blank: Certificate, orders: Orders) -> list[str]:
    faults = []
    for stage, order in enumerate(orders, start=1):
        told = fullest_moments(schedule, stage, blank.stages, blank.micro_batches)
        found = moments_of_order(order, len(told[0]))
        counted, most = in_flight(told), in_flight(found)
        if not isclose(counted, most, rel_tol=AGREEMENT):
            faults.append(
                f"counts {counted:g} micro-batches in flight in stage {stage} of {blank.stages}, but its order holds "
                f"{most:g} ({blank.micro_batches} micro-batches)"
            )
        elif any(len(set(moment)) > 1 for moment in told) and set(told) != set(found):
            moment = sorted(set(told) ^ set(found))[0]
            faults.append(
                f"{'counts' if moment in told else 'does not count'} chunks of stage {stage} of {blank.stages} that "
                f"hold {', '.join(f'{count:g}' for count in moment)} micro-batches at one time, "
                f"{'but' if moment in told else 'as'} its order {'never has' if moment in told else 'has'} them "
                f"({blank.micro_batches} micro-batches)"
            )
    return faults


def too_few_in_flight(schedule: Schedule, micro_batches: int, stages: int) -> Iterator[str]:
    """Yield a fault of a stage that holds too few micro-batches for the time of its schedule's weights, in any order.

    By Little's law (Operations Research 9(3), 1961), stages hold on average the rate of entering times the time of
    staying: a micro-batch stays in a stage at least until its gradients are back from all later stages. For equal
    stages, with weight gradients for which nobody waits (`UNITS`). Several chunks and copies are skipped.
    """
    if chunks_of(schedule) > 1 or copies_of(schedule) > 1:
        return
    whole = CYCLE * equal_stages_take(weights_of(schedule, micro_batches, stages), stages)
    for stage in range(1, stages + 1):
        stays = (stages - stage) * (UNITS[FORWARD] + UNITS[INPUT_GRADIENTS]) + CYCLE
        held = in_flight(fullest_moments(schedule, stage, stages, micro_batches))
        if held * whole < micro_batches * stays * (1 - AGREEMENT):
            yield (
                f"counts {held:g} micro-batches in flight in stage {stage} of {stages}, with which {micro_batches} "
                f"take longer than its weights give equal stages ({whole / CYCLE:g} times the time of one)"
            )
            return


def equal_passes(chunks: int) -> dict[tuple[str, int], float]:
    """Lengths of the passes of equal stages of so many chunks, in units."""
    return {(kind, chunk): unit for kind, unit in UNITS.items() for chunk in range(chunks)}


def batch_length(
    orders: Orders, places: Places, lengths: Lengths, staggered: bool, travel: Lengths | None = None
) -> float:
    """Time of a batch's passes, each run as soon as its device is free and its inputs are there.

    Args:
        orders: passes of each device.
        places: of the passes in the pipeline.
        lengths: of the passes of each stage, on any device.
        staggered: count each device from its first pass to its last, instead of all from the first one.
        travel: of each stage, by `FORWARD` or `INPUT_GRADIENTS` and chunk, time that awaited messages travel while the
            stage works; None: none.

    Raises:
        Stuck: stages wait for one another.
    """
    devices, last = len(orders), len(places.route) - 1
    forward: list[list[float | None]] = [[None] * places.micro_batches for _ in range(last + 1)]
    gradients: list[list[float | None]] = [[None] * places.micro_batches for _ in range(last + 1)]
    begun = [0.0] * devices
    clocks = [0.0] * devices
    done = [0] * devices

    def comes(stage: int, step: Pass) -> float | None:
        """Arrival of a pass's inputs; None: unknown yet."""
        place = places.chunks[stage][step.chunk]
        if step.kind == FORWARD:
            if not place:
                return 0.0
            sent, kind = forward[place - 1][step.micro_batch], FORWARD
        elif step.kind == WEIGHT_GRADIENTS or place == last:
            return 0.0
        else:
            sent, kind = gradients[place + 1][step.micro_batch], INPUT_GRADIENTS
        return sent if sent is None or travel is None else sent + travel[stage].get((kind, step.chunk), 0.0)

    moved = True
    while moved:
        moved = False
        for device, order in enumerate(orders):
            clock = clocks[device]
            first = position = done[device]
            late: list[tuple[list[float | None], int]] = []
            while position < len(order):
                step = order[position]
                stage = places.mirrored(device, step.micro_batch) if places.copies > 1 else device
                ready = comes(stage, step)
                if step.overlapped and ready is not None:  # Both wait for what either needs.
                    other = order[position + 1]
                    behind = comes(places.mirrored(device, other.micro_batch), other)
                    ready = None if behind is None else max(ready, behind)
                if ready is None:
                    break
                start = max(ready, clock)
                clock = start + lengths[stage][step.kind, step.chunk]
                if step.kind != WEIGHT_GRADIENTS:
                    ends = forward if step.kind == FORWARD else gradients
                    late.append((ends[places.chunks[stage][step.chunk]], step.micro_batch))
                if not step.overlapped:
                    for row, micro_batch in late:
                        row[micro_batch] = clock
                    late.clear()
                if not position:
                    begun[device] = start
                position += 1
            if position > first:
                clocks[device], done[device], moved = clock, position, True
    stuck = next((device for device, order in enumerate(orders) if done[device] < len(order)), None)
    if stuck is not None:
        raise Stuck(f"stage {stuck + 1} waits for ever to begin its pass {done[stuck] + 1}")
    return max(end - (begin if staggered else 0.0) for begin, end in zip(begun, clocks, strict=True))


def longest_pipeline(weights: Weights, orders: Orders, places: Places, lengths: Lengths, staggered: bool) -> float:
    """Upper bound (s) on passes in the order of a schedule whose weights are exact for equal stages.

    `(A + B s) v 3 u` with `B = (Bf + Bb + Bw) / 3`, where `u` is the longest of its forward passes, half backward
    passes, and their parts: equal stages with passes of `u`, `2 u`, `u` and `u` take exactly that, and shorter passes
    delay none. If stages count from their own starts, which may then be earlier, all start with the first.
    """
    chunks, earlier = len(places.route) // places.stages, 0.0
    if staggered:
        equal = [equal_passes(chunks)] * len(orders)
        together, apart = (batch_length(orders, places, equal, each) for each in (False, True))
        earlier = together - apart
    return longest_pass(orders, lengths) * (equal_stages_take(weights, places.stages) * chunks * CYCLE + earlier)


def highest_price(weights: Weights, orders: Orders, places: Places, lengths: Lengths) -> float:
    """Upper bound (s) on the weights' price of stages with passes no longer than these.

    `(3 A + s (Bf + Bb + max(Bw, 0))) v u`, with `u` as in `longest_pipeline`: short weight gradients may not
    compensate. Passes whose messages weigh more than the rest count all at that weight.
    """
    chunks = len(places.route) // places.stages
    filling = max(weights.forward, weights.arriving) + max(weights.input_gradients, weights.returning)
    filling += max(weights.weight_gradients, 0.0)
    return longest_pass(orders, lengths) * chunks * (CYCLE * weights.slowest + places.stages * filling)


def longest_pass(orders: Orders, lengths: Lengths) -> float:
    """Seconds of the longest pass, a whole backward pass counted as two (`UNITS`)."""
    kinds = {step.kind for order in orders for step in order}
    return max(seconds / UNITS[kind] for stage in lengths for (kind, _), seconds in stage.items() if kind in kinds)


def busiest(orders: Orders, places: Places, lengths: Lengths) -> float:
    """Seconds of all passes of the busiest device, a lower bound on a batch."""
    return max(
        sum(lengths[places.mirrored(device, step.micro_batch)][step.kind, step.chunk] for step in order)
        for device, order in enumerate(orders)
    )


def equal_stages_take(weights: Weights, stages: int) -> float:
    """Step time over a stage's time for equal passes: `A + s (Bf + Bb + Bw) / 3`."""
    if weights.uniform:  # So that no rounding comes from dividing by 3.
        return weights.slowest + weights.forward * stages
    return weights.slowest + float(weights.of_parts(1.0, 1.0, 1.0)) * stages / CYCLE
