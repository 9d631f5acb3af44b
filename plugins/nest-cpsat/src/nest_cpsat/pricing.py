"""Exact price of a plan, from the same sums as listed stages (PROBLEM.md section 4)."""

from __future__ import annotations

from itertools import pairwise

import numpy
from attrs import evolve

from nest.instance import Instance, Solution
from nest.tolerances import SEARCHED_MEMORY_SLACK
from nest_cpsat.cases import Case
from nest_cpsat.cuts import Booleans, Cuts, Floats
from nest_cpsat.placement import block_starts, point_to_point
from nest_cpsat.stage_cost_cache import StageCostCache
from nest_cpsat.stages import StageCosts
from nest_cpsat.verification import Price


def exact_price(instance: Instance, case: Case, solution: Solution) -> Price:
    """Price a plan of a case with one run of layers per stage, and find stages that do not fit."""
    seconds, memory = time_and_memory(instance, case, solution)
    capacity = instance.cluster.memory * (1 + SEARCHED_MEMORY_SLACK)
    return Price(seconds, tuple(each > capacity for each in memory))


def with_replay(instance: Instance, solution: Solution, closed_form: float) -> float:
    """Step time (s) of a plan with a known closed form."""
    schedule = next(each for each in instance.space.schedules if each.name == solution.schedule)
    if instance.makespan is None or not instance.space.replays(schedule):
        return closed_form
    return max(closed_form, instance.makespan(instance, solution))


def time_and_memory(instance: Instance, case: Case, solution: Solution) -> tuple[float, list[float]]:
    """Step time (s) of a plan, and bytes of each stage."""
    space = instance.space
    behind = numpy.zeros((case.stages + 1, len(instance.graph.layers)), dtype=bool)
    for index in reversed(range(case.stages)):
        behind[index] = behind[index + 1]
        behind[index, list(solution.stages[index].layers)] = True
    numbers = numpy.arange(case.stages)
    # The parts of stages that the plan recomputes, however many there are.
    partial = tuple(dict.fromkeys(stage.recompute for stage in solution.stages if stage.recompute in space.partial))
    book = StageCostCache(evolve(instance, space=evolve(space, partial=partial)), Cuts(behind, numbers, numbers + 1))
    levels = [-1, *_levels(instance, case, solution), -1]
    times, added, syncs, memory = [], 0.0, [], []
    for index, stage in enumerate(solution.stages):
        costs = book.costs(case, stage.candidate)
        row = costs.modes.index((stage.recompute, stage.zero))
        crossing = [[(levels[index + each], float(costs.bytes[index + each]))] for each in range(2)]
        if instance.space.direct:
            crossing = _received(instance, solution, index, levels)
        arriving, returning = (
            [
                (level, float(point_to_point(instance.cluster, size, level)) if level >= 0 else 0.0)
                for level, size in sizes
            ]
            for sizes in crossing
        )
        time, waited, sync = _with_ports(costs, row, index, [*arriving, *returning], case)
        times.append(time)
        syncs.append(sync)
        weights = case.weights
        added += float(costs.weighed(weights)[row, index]) + weights.waiting * waited
        added += weights.of_messages(*(sum(seconds for _, seconds in messages) for messages in (arriving, returning)))
        further = float(costs.more[row, index])
        if instance.space.direct and book.parts(stage.candidate).recompute[stage.recompute]["stashes"][index]:
            # A stage keeps what it reads, not what crosses the cut in front of it.
            further += _entering(instance, solution, index) - float(costs.bytes[index])
        memory.append(float(costs.one[row, index]) + (case.in_flight(index + 1) - 1) * further)
    return case.weights.slowest * max(times) + added + max(syncs), memory


def _received(instance: Instance, solution: Solution, index: int, levels: list[int]) -> list[list[tuple[int, float]]]:
    """Bytes by level that a stage reads, then bytes that later stages read from it, if sent directly."""
    ends, sizes = _ends(instance, solution), instance.candidates[solution.stages[index].candidate].tensor_bytes
    reading = [(maker, index) if index in readers else (0, 0) for maker, readers in ends]
    sending = [(index, max(readers, default=0)) if maker == index else (0, 0) for maker, readers in ends]
    every = []
    for spans in (reading, sending):
        far = numpy.array([max(levels[one + 1 : other + 1], default=-1) for one, other in spans], dtype=numpy.int64)
        every.append([(level, float(sizes[far == level].sum())) for level in sorted({*far.tolist()} - {-1})])
    return every


def _entering(instance: Instance, solution: Solution, index: int) -> float:
    sizes = instance.candidates[solution.stages[index].candidate].tensor_bytes
    reads = [index in readers and maker < index for maker, readers in _ends(instance, solution)]
    return float(sizes[numpy.array(reads, dtype=bool)].sum())


def _ends(instance: Instance, solution: Solution) -> list[tuple[int, set[int]]]:
    stage_of = {layer: index for index, stage in enumerate(solution.stages) for layer in stage.layers}
    return [(stage_of[maker], {stage_of[each] for each in readers}) for maker, readers in instance.graph.tensors]


def _with_ports(
    costs: StageCosts, row: int, index: int, messages: list[tuple[int, float]], case: Case
) -> tuple[float, float, float]:
    """Seconds of a stage per micro-batch with waits for ports, the waits, and seconds per batch."""
    own, received = float(costs.time[row, index]), sum(seconds for _, seconds in messages)
    alone = max(own, float(costs.shared[row, index]) + received) if case.hiding else own + received
    sync = float(costs.sync[row, index])
    if costs.ports is None:
        return alone, 0.0, sync
    busy: Floats = costs.ports.busy[row, :, index].copy()
    for level, seconds in messages:
        if level >= 0:
            busy[level] += seconds
    time = max(alone, float(busy.max()))
    used: Booleans = costs.ports.used[row, :, index]
    if used.any():
        free = float((time - busy[used]).min())
        sync = max(sync, float(costs.ports.once[row, index]) - case.micro_batches * free)
    return time, time - alone, sync


def _levels(instance: Instance, case: Case, solution: Solution) -> list[int]:
    """Innermost level of each boundary whose groups hold both blocks in every replica."""
    offsets = numpy.array([stage.offset for stage in solution.stages])
    widths = numpy.array([instance.candidates[stage.candidate].width for stage in solution.stages])
    starts = block_starts(instance, case, offsets, widths)
    ends = starts + widths[:, None] - 1
    return [
        next(
            level
            for level, capacity in enumerate(instance.cluster.capacities)
            if (starts[one] // capacity == ends[two] // capacity).all()
        )
        for one, two in pairwise(range(case.stages))
    ]
