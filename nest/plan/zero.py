"""What data parallelism costs a stage: the table of ZeRO stages in PROBLEM.md section 4."""

import numpy
from attrs import frozen

from nest.instance import Array, Cluster, Instance, Solution, StageDecision, port_seconds
from nest.plan.layout import first_devices, replica_size, widest


@frozen
class DataParallelGroup:
    """The devices over which a parameter group's gradients are reduced (PROBLEM.md section 4).

    With `zero_degree`, runs of neighbours among them shard (shard groups), and those with the same place in their runs
    hold the same shard (replicate groups): hybrid sharding of PyTorch's FSDP, MiCS (arXiv 2205.00119).

    Attributes:
        shape: of all of them, as collectives see them.
        members: all of them (`z`).
        shards: shapes of the shard groups, each once.
        shard_size: devices of a shard group; all of them without `zero_degree`.
        replicates: shapes of the replicate groups, each once; none when one shard group holds all devices.
    """

    shape: tuple[int, ...]
    members: int
    shards: tuple[tuple[int, ...], ...]
    shard_size: int
    replicates: tuple[tuple[int, ...], ...] = ()


def data_parallel_groups(instance: Instance, solution: Solution, index: int) -> tuple[DataParallelGroup, ...]:
    """For each parameter group of candidate `index`, the devices of a stage at offset 0, which stands for all."""
    candidate, cluster = instance.candidates[index], instance.cluster
    size = replica_size(cluster, widest(instance, solution), solution.replicas)
    first = first_devices(solution, size, 0, candidate.width).tolist()
    return tuple(
        _sharded(cluster, sorted({device + rank for device in first for rank in group.ranks}), solution.zero_degree)
        for group in candidate.state
    )


def _sharded(cluster: Cluster, members: list[int], degree: int | None) -> DataParallelGroup:
    """`members`, ascending, with ZeRO over `degree` of them at most; None: over all."""
    count, shape = len(members), cluster.shape(members)
    if degree is None or count <= degree:
        return DataParallelGroup(shape, count, (shape,), count)
    if count % degree:
        raise ValueError(f"{count} devices cannot be cut into shard groups of {degree}")
    shards = dict.fromkeys(cluster.shape(members[first : first + degree]) for first in range(0, count, degree))
    replicates = dict.fromkeys(cluster.shape(members[place::degree]) for place in range(degree))
    return DataParallelGroup(shape, count, tuple(shards), degree, tuple(replicates))


@frozen
class ZeroCosts:
    """What the parameter groups of a stage cost at its ZeRO stage, with all communication exposed.

    Attributes:
        often: seconds of communication per micro-batch.
        once: seconds of communication once per batch, waiting for other ranks included.
        update: seconds of the optimizer step.
        held: bytes of weights, gradients and optimizer.
        often_ports: seconds per micro-batch for which a device's port at each level is occupied, shape `(levels,)`.
        once_ports: the same once per batch.
    """

    often: float
    once: float
    update: float
    held: tuple[float, float, float]
    often_ports: Array
    once_ports: Array


def zero_costs(instance: Instance, stage: StageDecision, groups: tuple[DataParallelGroup, ...]) -> ZeroCosts:
    """The table of ZeRO stages: what a stage's parameters cost; `groups` are those of its candidate."""
    candidate, layers = instance.candidates[stage.candidate], list(stage.layers)
    zero = instance.space.effective_zero(stage.zero)
    updating = 0.0
    often, once = numpy.zeros((2, 1 + len(instance.cluster.levels)))
    held = [0.0, 0.0, 0.0]
    for parameters, group in zip(candidate.state, groups, strict=True):
        weights, gradients = float(parameters.weights[layers].sum()), float(parameters.gradients[layers].sum())
        optimizer, update = float(parameters.optimizer[layers].sum()), float(parameters.update[layers].sum())
        if zero == 0:
            once += slowest_collective(instance, "all_reduce", gradients, (group.shape,), group.members)
        else:
            # Shards are summed over the replicate groups once per batch.
            across = group.members // group.shard_size
            once += slowest_collective(instance, "all_reduce", gradients / group.shard_size, group.replicates, across)
            if zero == 1:
                once += slowest_collective(instance, "reduce_scatter", gradients, group.shards, group.shard_size)
            else:
                pieces = 1.0 if parameters.pieces is None else max(float(parameters.pieces[layers].sum()), 1.0)
                often += pieces * slowest_collective(
                    instance, "reduce_scatter", gradients / pieces, group.shards, group.shard_size
                )
            if zero < 3:
                once += slowest_collective(instance, "all_gather", weights, group.shards, group.shard_size)
            else:
                often += (
                    2
                    * pieces
                    * slowest_collective(instance, "all_gather", weights / pieces, group.shards, group.shard_size)
                )
        updating += update / (group.shard_size if zero else 1)
        for index, (size, sharded_from) in enumerate(((weights, 3), (gradients, 2), (optimizer, 1))):
            held[index] += size / (group.shard_size if zero >= sharded_from else 1)
    waited = instance.space.synchronisation * (instance.space.sharded_synchronisation if zero else 1.0)
    return ZeroCosts(
        often=float(often[0]),
        once=waited * float(once[0]),
        update=updating,
        held=(held[0], held[1], held[2]),
        often_ports=often[1:],
        once_ports=once[1:],
    )


def exposed(instance: Instance, seconds: float, work: float, share: float) -> float:
    """Exposed seconds of data-parallel communication beside `work` seconds of compute (docs: "Hiding").

    `share` of them is exposed however much compute there is.
    """
    least = share * seconds
    return max(least, seconds - work) if instance.space.hiding else least


def slowest_collective(
    instance: Instance, kind: str, size: float, shapes: tuple[tuple[int, ...], ...], members: int
) -> Array:
    """Seconds until groups of so many members and these shapes, which work side by side, are all done.

    Returns: the seconds, then those for which a device's port at each level is occupied; zeros without groups or bytes.
    """
    model, levels = instance.collectives, instance.cluster.levels
    slowest = numpy.zeros(1 + len(levels))
    for shape in shapes if size else ():
        seconds = float(model.time(kind, size, shape, levels, members=members))
        ports = port_seconds(model, kind, numpy.array([size]), shape, levels, members)
        slowest = numpy.maximum(slowest, [seconds, *ports[:, 0]])
    return slowest
