"""What data parallelism costs a stage: the table of ZeRO stages in PROBLEM.md section 4."""

import numpy
from attrs import frozen

from nest.instance import Array, Cluster, Instance, Solution, StageDecision, port_seconds


@frozen
class Peers:
    """The devices over which a parameter group's gradients are reduced (PROBLEM.md section 4).

    With `zero_degree`, runs of neighbours among them shard (shard groups), and those with the same place in their runs
    hold the same shard (replicate groups): hybrid sharding of PyTorch's FSDP, MiCS (arXiv 2205.00119).

    Attributes:
        shape: of all of them, as collectives see them.
        members: all of them (`z`).
        shards: shapes of the shard groups, each once.
        sharing: devices of a shard group; all of them without `zero_degree`.
        replicates: shapes of the replicate groups, each once; none when one shard group holds all devices.
    """

    shape: tuple[int, ...]
    members: int
    shards: tuple[tuple[int, ...], ...]
    sharing: int
    replicates: tuple[tuple[int, ...], ...] = ()


def peers_of(instance: Instance, solution: Solution, index: int, first: list[int]) -> tuple[Peers, ...]:
    """For each parameter group of candidate `index`, the devices of a stage at offset 0, which stands for all.

    `first` is the first device of that stage in each replica.
    """
    candidate = instance.candidates[index]
    found = []
    for group in candidate.state:
        members = sorted({device + rank for device in first for rank in group.ranks})
        found.append(_shared(instance.cluster, members, solution.zero_degree or len(members)))
    return tuple(found)


def _shared(cluster: Cluster, members: list[int], degree: int) -> Peers:
    """`members`, ascending, with ZeRO over `degree` of them at most."""
    count, shape = len(members), cluster.shape(members)
    if count <= degree:
        return Peers(shape, count, (shape,), count)
    if count % degree:
        raise ValueError(f"{count} devices cannot be cut into shard groups of {degree}")
    shards = dict.fromkeys(cluster.shape(members[first : first + degree]) for first in range(0, count, degree))
    replicates = dict.fromkeys(cluster.shape(members[place::degree]) for place in range(degree))
    return Peers(shape, count, tuple(shards), degree, tuple(replicates))


@frozen
class StateCosts:
    """What the parameter groups of a stage cost at its ZeRO stage, with nothing hidden.

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


def state_costs(instance: Instance, stage: StageDecision, peers: tuple[Peers, ...]) -> StateCosts:
    """What a stage's parameter groups cost; `peers` are those of its candidate."""
    candidate, layers = instance.candidates[stage.candidate], list(stage.layers)
    zero = instance.space.effective_zero(stage.zero)
    updating = 0.0
    often, once = numpy.zeros((2, 1 + len(instance.cluster.levels)))
    held = [0.0, 0.0, 0.0]
    for group, peer in zip(candidate.state, peers, strict=True):
        weights, gradients = float(group.weights[layers].sum()), float(group.gradients[layers].sum())
        optimizer, update = float(group.optimizer[layers].sum()), float(group.update[layers].sum())
        if zero == 0:
            once += _slowest(instance, "all_reduce", gradients, (peer.shape,), peer.members)
        else:
            # Shards are summed over the replicate groups once per batch.
            across = peer.members // peer.sharing
            once += _slowest(instance, "all_reduce", gradients / peer.sharing, peer.replicates, across)
            if zero == 1:
                once += _slowest(instance, "reduce_scatter", gradients, peer.shards, peer.sharing)
            else:
                pieces = 1.0 if group.pieces is None else max(float(group.pieces[layers].sum()), 1.0)
                often += pieces * _slowest(instance, "reduce_scatter", gradients / pieces, peer.shards, peer.sharing)
            if zero < 3:
                once += _slowest(instance, "all_gather", weights, peer.shards, peer.sharing)
            else:
                often += 2 * pieces * _slowest(instance, "all_gather", weights / pieces, peer.shards, peer.sharing)
        updating += update / (peer.sharing if zero else 1)
        for index, (size, sharded_from) in enumerate(((weights, 3), (gradients, 2), (optimizer, 1))):
            held[index] += size / (peer.sharing if zero >= sharded_from else 1)
    waited = instance.space.synchronisation * (instance.space.sharded_synchronisation if zero else 1.0)
    return StateCosts(
        often=float(often[0]),
        once=waited * float(once[0]),
        update=updating,
        held=(held[0], held[1], held[2]),
        often_ports=often[1:],
        once_ports=once[1:],
    )


def exposed(instance: Instance, seconds: float, work: float, share: float) -> float:
    """What `seconds` of data-parallel communication add beside `work` seconds of compute (docs: "Hiding").

    `share` of them shows however much compute there is.
    """
    shown = share * seconds
    return max(shown, seconds - work) if instance.space.hiding else shown


def _slowest(instance: Instance, kind: str, size: float, shapes: tuple[tuple[int, ...], ...], members: int) -> Array:
    """Seconds until groups of so many members and these shapes, which work side by side, are all done.

    Returns: the seconds, then those for which a device's port at each level is occupied; zeros without groups or bytes.
    """
    model, levels = instance.collectives, instance.cluster.levels
    found = numpy.zeros(1 + len(levels))
    for shape in shapes if size else ():
        seconds = float(model.time(kind, size, shape, levels, members=members))
        ports = port_seconds(model, kind, numpy.array([size]), shape, levels, members)
        found = numpy.maximum(found, [seconds, *ports[:, 0]])
    return found
