"""Ties: of equally fast plans, the one with the fewest bytes on its fullest stage (PROBLEM.md section 5)."""

from collections.abc import Callable

import numpy
from attrs import evolve

from nest.instance import Instance, Result, Solution, StageDecision, chunks_of, copies_of, stage_mode
from nest.solve.dp.downsets import lattice
from nest.solve.dp.pareto import in_flight_from_last
from nest.solve.dp.sums import cuts
from nest.solve.dp.zero import sharded
from nest.tolerances import AGREEMENT

Search = Callable[[Instance, tuple[Solution, float]], Result]
"""Search that starts from a plan and its step time, and returns it if nothing is faster."""


def with_least_memory(instance: Instance, result: Result, search: Search) -> Result:
    """Replace the plan by the one with the least memory among those of equal step time, devices and stages.

    Each search offers less memory than the last plan needs, until none ties. Plans of several chunks stay: with less
    memory their chunks become uneven, or larger at the end, and the replay of such plans is slower than their price.

    Args:
        search: searches another instance for a plan as fast as a known one, which loses ties.
    """
    best, seconds, space = result.solution, result.batch_time, instance.space
    if result.status != "optimal" or not best or not best.stages or seconds is None or best.chunks > 1:
        return result
    plain = tuple(schedule for schedule in space.schedules if chunks_of(schedule) == 1)
    while needed := fullest(instance, best):
        cluster = evolve(instance.cluster, memory=needed * (1 - AGREEMENT))
        emptier = evolve(instance, cluster=cluster, space=evolve(space, schedules=plain))
        found = search(emptier, (best, seconds)).solution
        if found is None or found == best or plan_size(instance, found) != plan_size(instance, best):
            break
        best = found
    return evolve(result, solution=best)


def plan_size(instance: Instance, plan: Solution) -> tuple[int, int]:
    """Devices and stages, which break ties first (PROBLEM.md section 5)."""
    widths = [instance.candidates[stage.candidate].width for stage in plan.stages]
    return plan.replicas * sum(widths), len(plan.stages)


def fullest(instance: Instance, plan: Solution) -> float:
    """Bytes of the fullest stage of a plan without chunks, with the reserve (PROBLEM.md section 4)."""
    schedule = next(each for each in instance.space.schedules if (each.name, chunks_of(each)) == (plan.schedule, 1))
    micro_batches = instance.micro_batches(instance.candidates[plan.stages[0].candidate], plan.replicas)
    assert micro_batches is not None
    in_flight = in_flight_from_last(schedule, len(plan.stages), micro_batches)
    inside = numpy.zeros((len(plan.stages) + 1, len(instance.graph.layers)), dtype=bool)
    for count, stage in enumerate(reversed(plan.stages), start=1):
        inside[count:, list(stage.layers)] = True
    downsets, needed = lattice(inside), []
    for count, stage in enumerate(reversed(plan.stages), start=1):
        candidate, layers = instance.candidates[stage.candidate], list(stage.layers)
        mode = stage_mode(instance, stage)
        stashed = float(cuts(instance, candidate, downsets)[count]) if mode.stash_inputs else 0.0
        further = (in_flight[count - 1] - 1) * (float(mode.more[layers].sum()) + stashed)
        activations = float(mode.first[layers].sum()) + float(mode.peak[layers].max()) + further
        needed.append(copies_of(schedule) * _state(instance, plan, stage) + activations)
        needed[-1] += candidate.gathered if stage.zero >= 3 else 0.0
    return max(needed) + instance.cluster.reserve


def _state(instance: Instance, plan: Solution, stage: StageDecision) -> float:
    """Bytes of one copy of a stage's weights, gradients and optimizer state."""
    layers, groups = list(stage.layers), []
    for group in instance.candidates[stage.candidate].state:
        held = (each[layers].sum(keepdims=True) for each in (group.weights, group.gradients, group.optimizer))
        groups.append((len(group.ranks), *held))
    zero = instance.space.effective_zero(stage.zero)
    return float(sharded(groups, 1, replicas=plan.replicas, zero=zero, zero_degree=plan.zero_degree)[0])
