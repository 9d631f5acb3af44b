"""Data-parallel communication of a stage: ZeRO, shard groups and hiding, read from PROBLEM.md section 4 once more.

Shard groups and hiding are the sections of these names in docs/explanation/problem.md.
"""

import math
from collections.abc import Sequence

import numpy
from attrs import frozen

from nest.instance import Instance, ParameterGroup, Solution, StageDecision
from nest.simulate.boundaries import replica_size


@frozen
class Sharding:
    """Seconds that a stage spends on data-parallel communication and its optimizer, and the bytes of its state.

    Attributes:
        gather: of weights, in a forward pass and once more in a backward pass.
        scatter: of gradients, in a backward pass.
        reduce: of gradients, once per batch.
        refresh: weights gathered after the optimizer step.
        update: the optimizer step.
        state: bytes of weights, gradients and optimizer on a device.
        in_step: replicas, neighbours, that shard groups join; only these wait for each other in every micro-batch.
    """

    gather: float
    scatter: float
    reduce: float
    refresh: float
    update: float
    state: float
    in_step: int


class Groups:
    """The devices that hold the same parameters, for a stage at offset 0, which stands for all."""

    def __init__(self, instance: Instance, solution: Solution) -> None:
        """Of one plan; shapes are found once for the devices of each parameter group."""
        self._instance = instance
        self._solution = solution
        self._sets: dict[tuple[int, tuple[int, ...]], list[list[tuple[tuple[int, ...], int]]]] = {}

    def members(self, width: int, ranks: Sequence[int]) -> list[int]:
        """Their numbers, ascending (PROBLEM.md section 4: `r*K + o` or `r*g + o`)."""
        whole = replica_size(self._instance, self._solution)
        stride = whole if self._solution.rank_order == "pp-inner" else width
        return sorted({number * stride + rank for number in range(self._solution.replicas) for rank in ranks})

    def sharing(self, width: int, ranks: Sequence[int]) -> int:
        """Devices of a shard group."""
        return min(len(self.members(width, ranks)), self._solution.zero_degree or self._instance.cluster.size)

    def in_step(self, width: int, groups: Sequence[ParameterGroup]) -> int:
        """Replicas that the shard groups of these parameters join; where groups overlap, all that they overlap with."""
        joined = 1
        for group in groups:
            ranks = len(group.ranks)
            joined = math.lcm(joined, math.lcm(self.sharing(width, group.ranks), ranks) // ranks)
        return joined

    def slowest(self, kind: str, size: float, width: int, ranks: tuple[int, ...], which: int) -> float:
        """Seconds of a collective over all members (`which` is 0), the shard groups (1) or the replicate groups (2).

        What has no bytes is not sent, and takes no time.
        """
        if size == 0:
            return 0.0
        if (width, ranks) not in self._sets:
            members, sharing = self.members(width, ranks), self.sharing(width, ranks)
            runs = [members[first : first + sharing] for first in range(0, len(members), sharing)]
            across = [members[place::sharing] for place in range(sharing)] if len(runs) > 1 else []
            shape = self._instance.cluster.shape
            self._sets[width, ranks] = [
                sorted({(shape(group), len(group)) for group in groups}) for groups in ([members], runs, across)
            ]
        levels, time = self._instance.cluster.levels, self._instance.collectives.time
        alike = self._sets[width, ranks][which]
        return max((time(kind, size, shape, levels, members=count) for shape, count in alike), default=0.0)


def sharding(instance: Instance, groups: Groups, stage: StageDecision, work: float) -> Sharding:
    """What data parallelism costs a stage.

    Args:
        instance: of the plan.
        groups: of the plan.
        stage: the stage.
        work: seconds it computes per micro-batch, recomputation included.
    """
    candidate = instance.candidates[stage.candidate]
    found = [_of_group(instance, groups, stage, group) for group in candidate.state]
    total = [float(each) for each in numpy.array(found).sum(axis=0)] if found else [0.0] * 6
    gather, scatter, reduce, refresh, update, state = total
    space = instance.space
    often = _shown(instance, 2 * gather + scatter, work)
    waited = space.synchronisation * (space.sharded_synchronisation if stage.zero else 1.0)
    once = _shown(instance, waited * (reduce + refresh), work) * waited
    return Sharding(
        gather * often,
        scatter * often,
        reduce * once,
        refresh * once,
        update,
        state,
        groups.in_step(candidate.width, candidate.state),
    )


def _of_group(instance: Instance, groups: Groups, stage: StageDecision, group: ParameterGroup) -> list[float]:
    """The fields of `Sharding` for one parameter group, with nothing hidden (PROBLEM.md section 4, the table)."""
    layers = list(stage.layers)
    width = instance.candidates[stage.candidate].width
    weights, gradients = float(group.weights[layers].sum()), float(group.gradients[layers].sum())
    optimizer, update = float(group.optimizer[layers].sum()), float(group.update[layers].sum())
    zero, sharing = stage.zero, groups.sharing(width, group.ranks)
    state = weights / (sharing if zero >= 3 else 1) + gradients / (sharing if zero >= 2 else 1)
    state += optimizer / (sharing if zero >= 1 else 1)
    if zero == 0:
        return [0.0, 0.0, groups.slowest("all_reduce", gradients, width, group.ranks, 0), 0.0, update, state]
    scatter = groups.slowest("reduce_scatter", gradients, width, group.ranks, 1)
    gather = groups.slowest("all_gather", weights, width, group.ranks, 1)
    across = groups.slowest("all_reduce", gradients / sharing, width, group.ranks, 2)
    if zero == 1:
        return [0.0, 0.0, scatter + across, gather, update / sharing, state]
    return [gather if zero == 3 else 0.0, scatter, across, gather if zero == 2 else 0.0, update / sharing, state]


def _shown(instance: Instance, seconds: float, work: float) -> float:
    """Share of `seconds` of communication that shows beside `work` seconds of compute (section "Hiding")."""
    if seconds == 0:
        return 0.0
    hidden = (seconds - work) / seconds if instance.space.hiding else 0.0
    return max(instance.space.exposed, hidden)
