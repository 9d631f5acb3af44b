"""Data-parallel costs of a stage: the table of ZeRO stages in PROBLEM.md section 4."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy

from nest.instance import (
    Array,
    Cluster,
    Instance,
    Level,
    NetworkModel,
    ParameterGroup,
    Ring,
    Solution,
    StageDecision,
    port_seconds,
)
from nest.plan.layout import first_devices, replica_size, widest

STEP = 2.0**-16
"""Relative growth of a buffer that separates the bytes of a collective from its latencies: below any kink but its own,
and large enough that rounding leaves ten digits."""

Members = tuple[int, ...] | tuple[Ring, ...]
"""Devices as seen by collectives: their shape on levels, or the rings of a network."""


class DataParallelGroup(NamedTuple):
    """Devices that reduce a parameter group's gradients (PROBLEM.md section 4).

    With `zero_degree`, runs of neighbours shard (shard groups), and devices at the same place in their runs hold the
    same shard (replicate groups): hybrid sharding of PyTorch's FSDP, MiCS (arXiv 2205.00119).
    """

    whole: tuple[Members, ...]  # All of them, as seen by collectives; in a placed plan, those of every rank's group.
    members: int  # Number of devices (`z`).
    shards: tuple[Members, ...]  # Shard groups, one per shape.
    shard_size: int  # Devices of a shard group; all without `zero_degree`.
    replicates: tuple[Members, ...] = ()  # Replicate groups, one per shape; empty if one shard group has all devices.


def data_parallel_groups(instance: Instance, solution: Solution) -> tuple[tuple[DataParallelGroup, ...], ...]:
    """Groups of each stage's parameter groups.

    On levels the devices of a stage at offset 0 represent all, so stages of one candidate share them.
    """
    if solution.placement is not None:
        return tuple(_placed_groups(instance, solution, index) for index in range(len(solution.stages)))
    used = {stage.candidate for stage in solution.stages}
    groups = {index: _groups_on_levels(instance, solution, index) for index in used}
    return tuple(groups[stage.candidate] for stage in solution.stages)


def _groups_on_levels(instance: Instance, solution: Solution, index: int) -> tuple[DataParallelGroup, ...]:
    """For each parameter group of candidate `index`, the devices of a stage at offset 0, which represent all."""
    candidate, cluster = instance.candidates[index], instance.cluster_of(index)
    # Beside stages of other pools, those of this one are all as wide.
    wide = widest(instance, solution) if instance.pools is None else candidate.width
    size = replica_size(cluster, wide, solution.replicas)
    first = first_devices(solution, size, 0, candidate.width).tolist()
    return tuple(
        _sharded(cluster, sorted({device + rank for device in first for rank in group.ranks}), solution.zero_degree)
        for group in candidate.state
    )


def _sharded(cluster: Cluster, members: list[int], degree: int | None) -> DataParallelGroup:
    """`members`, ascending, with ZeRO over at most `degree` of them; None: over all."""
    count, shape = len(members), cluster.shape(members)
    if degree is None or count <= degree:
        return DataParallelGroup((shape,), count, (shape,), count)
    if count % degree:
        raise ValueError(f"{count} devices cannot be cut into shard groups of {degree}")
    shards = dict.fromkeys(cluster.shape(members[first : first + degree]) for first in range(0, count, degree))
    replicates = dict.fromkeys(cluster.shape(members[place::degree]) for place in range(degree))
    return DataParallelGroup((shape,), count, tuple(shards), degree, tuple(replicates))


def _placed_groups(instance: Instance, solution: Solution, index: int) -> tuple[DataParallelGroup, ...]:
    """For each parameter group of a stage, all devices with equal parameters, wherever they are."""
    assert instance.network is not None
    assert solution.placement is not None
    model, candidate = instance.network.model, instance.candidates[solution.stages[index].candidate]
    blocks = [replica[index] for replica in solution.placement]
    groups = []
    for parameters in candidate.state:
        sets = [
            [block[rank] for block in blocks for rank in ranks]
            for ranks in translates(parameters.ranks, candidate.width)
        ]
        count, degree = len(sets[0]), solution.zero_degree
        if degree is None or count <= degree:
            whole = tuple(_rings(model, members) for members in sets)
            groups.append(DataParallelGroup(whole, count, whole, count))
            continue
        if count % degree:
            raise ValueError(f"{count} devices cannot be cut into shard groups of {degree}")
        shards = [members[first : first + degree] for members in sets for first in range(0, count, degree)]
        replicates = [members[place::degree] for members in sets for place in range(degree)]
        groups.append(
            DataParallelGroup(
                tuple(_rings(model, members) for members in sets),
                count,
                tuple(_rings(model, members) for members in shards),
                degree,
                tuple(_rings(model, members) for members in replicates),
            )
        )
    return tuple(groups)


def _rings(model: NetworkModel, members: list[int]) -> tuple[Ring, ...]:
    return model.rings(members) if len(members) > 1 else ()


def translates(ranks: tuple[int, ...], width: int) -> list[tuple[int, ...]]:
    """Sets of a block's ranks with equal parameters, `ranks` first."""
    found: list[tuple[int, ...]] = []
    taken: set[int] = set()
    for step in range(width - max(ranks)):
        shifted = tuple(rank + step for rank in ranks)
        if taken.isdisjoint(shifted):
            taken.update(shifted)
            found.append(shifted)
    return found


class ZeroCosts(NamedTuple):
    """Costs of a stage's parameter groups at its ZeRO stage, with all communication exposed."""

    often: float  # Seconds of communication per micro-batch.
    often_forward: float  # Part of it in forward passes, in which ZeRO 3 gathers weights.
    once: float  # Seconds of communication once per batch, with waits for other ranks.
    update: float  # Seconds of the optimizer step.
    held: tuple[float, float, float]  # Bytes of weights, gradients and optimizer.
    often_ports: Array  # Seconds per micro-batch that a device's port at each level is occupied, shape `(levels,)`.
    once_ports: Array  # The same once per batch.


def zero_costs(instance: Instance, stage: StageDecision, groups: tuple[DataParallelGroup, ...]) -> ZeroCosts:
    """Costs of a stage's parameters from the table of ZeRO stages; `groups` are those of its candidate."""
    candidate, layers = instance.candidates[stage.candidate], numpy.array(stage.layers)
    zero = instance.space.effective_zero(stage.zero)
    updating = gathering = 0.0
    often, once = numpy.zeros((2, 1 + len(instance.cluster.levels)))
    held = [0.0, 0.0, 0.0]
    for parameters, group in zip(candidate.state, groups, strict=True):
        weights, gradients = float(parameters.weights[layers].sum()), float(parameters.gradients[layers].sum())
        optimizer, update = float(parameters.optimizer[layers].sum()), float(parameters.update[layers].sum())
        if zero == 0:
            once += slowest_collective(instance, "all_reduce", gradients, group.whole, group.members)
        else:
            # Shards are summed over the replicate groups once per batch.
            across = group.members // group.shard_size
            once += slowest_collective(instance, "all_reduce", gradients / group.shard_size, group.replicates, across)
            if zero == 1:
                once += slowest_collective(instance, "reduce_scatter", gradients, group.shards, group.shard_size)
            else:
                pieces = pieces_of(parameters, layers)
                often += pieces * slowest_collective(
                    instance, "reduce_scatter", gradients / pieces, group.shards, group.shard_size
                )
            if zero < 3:
                once += slowest_collective(instance, "all_gather", weights, group.shards, group.shard_size)
            else:
                gather = slowest_collective(instance, "all_gather", weights / pieces, group.shards, group.shard_size)
                often += 2 * pieces * gather
                gathering += pieces * float(gather[0])
        updating += update / (group.shard_size if zero else 1)
        for index, (size, sharded_from) in enumerate(((weights, 3), (gradients, 2), (optimizer, 1))):
            held[index] += size / (group.shard_size if zero >= sharded_from else 1)
    waited = instance.space.synchronisation * (instance.space.sharded_synchronisation if zero else 1.0)
    return ZeroCosts(
        often=float(often[0]),
        often_forward=gathering,
        once=waited * float(once[0]),
        update=updating,
        held=(held[0], held[1], held[2]),
        often_ports=often[1:],
        once_ports=once[1:],
    )


def pieces_of(parameters: ParameterGroup, layers: Any) -> float:
    """Number of collectives that shard layers of a parameter group, at least 1."""
    return 1.0 if parameters.pieces is None else max(float(parameters.pieces[layers].sum()), 1.0)


def often_by_chunk(
    instance: Instance, stage: StageDecision, groups: tuple[DataParallelGroup, ...], chunks: Sequence[Sequence[int]]
) -> list[tuple[float, float]]:
    """ZeRO gathering in a forward pass of each chunk, and scattering in a backward pass, exposed, in seconds.

    From the stage's: latencies in equal parts, the rest by the bytes of the chunks (PROBLEM.md section 4).
    """
    candidate, layers = instance.candidates[stage.candidate], list(stage.layers)
    zero = instance.space.effective_zero(stage.zero)
    found = numpy.zeros((2, len(chunks)))
    for parameters, group in zip(candidate.state, groups, strict=True):
        pieces = pieces_of(parameters, layers)
        calls = [("all_gather", parameters.weights, 3), ("reduce_scatter", parameters.gradients, 2)]
        for row, (kind, sizes, sharded_from) in zip(found, calls, strict=True):
            size = float(sizes[layers].sum()) / pieces
            if zero < sharded_from or not size:
                continue
            both = (size, size * (1 + STEP))
            seconds, more = (
                float(slowest_collective(instance, kind, each, group.shards, group.shard_size)[0]) for each in both
            )
            growing = (more - seconds) / STEP
            for index, chunk in enumerate(chunks):
                share = float(sizes[list(chunk)].sum()) / (size * pieces)
                row[index] += pieces * ((seconds - growing) / len(chunks) + growing * share)
    return [(float(gather), float(scatter)) for gather, scatter in found.T]


def exposed(instance: Instance, seconds: float, work: float, share: float) -> float:
    """Exposed seconds of data-parallel communication beside `work` seconds of compute (docs: "Hiding").

    At least `share` of them is exposed.
    """
    least = share * seconds
    return max(least, seconds - work) if instance.space.hiding else least


def slowest_collective(instance: Instance, kind: str, size: float, groups: tuple[Members, ...], members: int) -> Array:
    """Seconds until parallel groups of so many members are all done.

    Returns: the seconds, then those for which a device's port at each level is occupied; zeros without groups or bytes.
        Rings of a network occupy its links, not ports.
    """
    model, levels = instance.collectives, instance.cluster.levels
    slowest = numpy.zeros(1 + len(levels))
    for group in groups if size and members > 1 else ():
        if isinstance(group[0], Ring):
            slowest[0] = max(slowest[0], ring_seconds(instance, kind, size, group, members)[0])
            continue
        seconds = float(model.time(kind, size, group, levels, members=members))
        ports = port_seconds(model, kind, numpy.array([size]), group, levels, members)
        slowest = numpy.maximum(slowest, [seconds, *ports[:, 0]])
    return slowest


def ring_seconds(
    instance: Instance, kind: str, size: float, rings: tuple[Ring, ...], members: int
) -> tuple[float, Ring]:
    """Seconds of a collective among so many devices on the best of their rings, and that ring."""
    assert instance.network is not None
    model = instance.network.collectives
    return min(
        (
            (float(model.time(kind, size, (members,), (level_of(ring, members),), members=members)), ring)
            for ring in rings
        ),
        key=lambda each: each[0],
    )


def level_of(ring: Ring, members: int) -> Level:
    """Level of so many devices on which a flat ring costs the same as `ring`."""
    return Level("ring", members, ring.bandwidth, ring.latency)
