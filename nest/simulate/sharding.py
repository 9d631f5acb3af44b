"""Data-parallel communication of a stage: ZeRO, shard groups and hiding, read from PROBLEM.md section 4 once more.

Shard groups and hiding are the sections of these names in docs/explanation/problem.md.
"""

import math
from collections.abc import Sequence

import numpy
from attrs import evolve, frozen

from nest.instance import Array, Instance, ParameterGroup, Solution, StageDecision, port_seconds
from nest.simulate.boundaries import replica_size


@frozen
class Sharding:
    """Seconds that a stage spends on data-parallel communication and its optimizer, and the bytes of its state.

    Attributes:
        gather: of weights, in a forward pass and once more in a backward pass; what shows of it.
        scatter: of gradients, in a backward pass; what shows of it.
        reduce: of gradients, once per batch, whether it shows or not; waiting for other ranks included.
        refresh: weights gathered after the optimizer step, whether it shows or not; waiting included.
        shown: share of `reduce` and `refresh` that shows, ports aside.
        update: the optimizer step.
        state: bytes of weights, gradients and optimizer on a device.
        in_step: replicas, neighbours, that shard groups join; only these wait for each other in every micro-batch.
        often_ports: seconds per micro-batch for which a port of each level is occupied, hidden or not.
        once_ports: the same once per batch.
    """

    gather: float
    scatter: float
    reduce: float
    refresh: float
    shown: float
    update: float
    state: float
    in_step: int
    often_ports: tuple[float, ...]
    once_ports: tuple[float, ...]


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

    def slowest(self, kind: str, size: float, width: int, ranks: tuple[int, ...], which: int) -> Array:
        """Seconds of a collective over all members (`which` is 0), the shard groups (1) or the replicate groups (2).

        What has no bytes is not sent, and takes no time.

        Returns: the seconds, then those for which a port of each level is occupied, shape `(1 + levels,)`.
        """
        levels, model = self._instance.cluster.levels, self._instance.collectives
        found = numpy.zeros(1 + len(levels))
        if size == 0:
            return found
        if (width, ranks) not in self._sets:
            members, sharing = self.members(width, ranks), self.sharing(width, ranks)
            runs = [members[first : first + sharing] for first in range(0, len(members), sharing)]
            across = [members[place::sharing] for place in range(sharing)] if len(runs) > 1 else []
            shape = self._instance.cluster.shape
            self._sets[width, ranks] = [
                sorted({(shape(group), len(group)) for group in groups}) for groups in ([members], runs, across)
            ]
        for members_shape, count in self._sets[width, ranks][which]:
            seconds = float(model.time(kind, size, members_shape, levels, members=count))
            ports = port_seconds(model, kind, numpy.array([size]), members_shape, levels, count)
            found = numpy.maximum(found, [seconds, *ports[:, 0]])
        return found


def sharding(instance: Instance, groups: Groups, stage: StageDecision, work: float) -> Sharding:
    """What data parallelism costs a stage.

    Args:
        instance: of the plan.
        groups: of the plan.
        stage: the stage.
        work: seconds it computes per micro-batch, recomputation included.
    """
    candidate, space = instance.candidates[stage.candidate], instance.space
    stage = evolve(stage, zero=space.effective_zero(stage.zero))
    sent = numpy.zeros((4, 1 + len(instance.cluster.levels)))
    update = state = 0.0
    for group in candidate.state:
        sent += _sent(groups, stage, candidate.width, group)
        sharing = groups.sharing(candidate.width, group.ranks)
        update += _share(group.update, stage, 1, sharing)
        state += _share(group.weights, stage, 3, sharing) + _share(group.gradients, stage, 2, sharing)
        state += _share(group.optimizer, stage, 1, sharing)
    gather, scatter, reduce, refresh = (float(seconds) for seconds in sent[:, 0])
    often = _shown(instance, 2 * gather + scatter, work, space.often_exposed)
    waited = space.synchronisation * (space.sharded_synchronisation if stage.zero else 1.0)
    return Sharding(
        gather=gather * often,
        scatter=scatter * often,
        reduce=reduce * waited,
        refresh=refresh * waited,
        shown=_shown(instance, waited * (reduce + refresh), work, space.exposed),
        update=update,
        state=state,
        in_step=groups.in_step(candidate.width, candidate.state),
        often_ports=tuple((2 * sent[0, 1:] + sent[1, 1:]).tolist()),
        # Who waits occupies nothing; where ranks take less than the model says, their ports do, too.
        once_ports=tuple((min(waited, 1.0) * (sent[2, 1:] + sent[3, 1:])).tolist()),
    )


def _share(row: Array, stage: StageDecision, sharded_from: int, sharing: int) -> float:
    """The sum over a stage's layers of what so many devices share from a ZeRO stage on."""
    return float(row[list(stage.layers)].sum()) / (sharing if stage.zero >= sharded_from else 1)


def _sent(groups: Groups, stage: StageDecision, width: int, group: ParameterGroup) -> Array:
    """What one parameter group sends, with nothing hidden (PROBLEM.md section 4, the table).

    Returns: gather, scatter, reduce and refresh, each as `Groups.slowest`; shape `(4, 1 + levels)`.
    """
    layers = list(stage.layers)
    weights, gradients = float(group.weights[layers].sum()), float(group.gradients[layers].sum())
    zero, sharing = stage.zero, groups.sharing(width, group.ranks)
    if zero == 0:
        whole = groups.slowest("all_reduce", gradients, width, group.ranks, 0)
        nothing = numpy.zeros_like(whole)
        return numpy.array([nothing, nothing, whole, nothing])
    scatter = groups.slowest("reduce_scatter", gradients, width, group.ranks, 1)
    gather = groups.slowest("all_gather", weights, width, group.ranks, 1)
    across = groups.slowest("all_reduce", gradients / sharing, width, group.ranks, 2)
    nothing = numpy.zeros_like(gather)
    if zero == 1:
        return numpy.array([nothing, nothing, scatter + across, gather])
    if group.pieces is not None and (count := float(group.pieces[layers].sum())) > 1:
        scatter = count * groups.slowest("reduce_scatter", gradients / count, width, group.ranks, 1)
        if zero == 3:
            gather = count * groups.slowest("all_gather", weights / count, width, group.ranks, 1)
    return numpy.array([gather if zero == 3 else nothing, scatter, across, gather if zero == 2 else nothing])


def _shown(instance: Instance, seconds: float, work: float, share: float) -> float:
    """What shows of `seconds` beside `work` seconds of compute, `share` at least (section "Hiding"), as a share."""
    if seconds == 0:
        return 0.0
    hidden = (seconds - work) / seconds if instance.space.hiding else 0.0
    return max(share, hidden)
