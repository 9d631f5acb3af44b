"""What each ZeRO stage adds to stages: communication, the optimizer step, state (the table of PROBLEM.md section 4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy
from attrs import frozen

from nest.instance import Array, Cluster, CollectiveModel, Instance, port_seconds, shape_of
from nest.records import Record

if TYPE_CHECKING:
    from nest.solve.dp.configurations import Configuration
    from nest.solve.dp.pairs import Stages
    from nest.solve.dp.sums import CandidateSums

Shape = tuple[int, ...]


@frozen(eq=False, repr=False)
class Sharding(Record):
    """How ZeRO shards over devices that hold the same parameters (the `zero_degree` of a plan).

    Attributes:
        whole: shape of all devices.
        members: all devices (`z`).
        shards: shapes of the shard groups, runs of neighbours, each once.
        count: devices of such a group.
        replicates: shapes of the replicate groups, which hold the same shard, each once; none when one shard group
            holds all devices.
    """

    whole: Shape
    members: int
    shards: tuple[Shape, ...]
    count: int
    replicates: tuple[Shape, ...] = ()


@lru_cache(maxsize=1 << 16)
def sharding(
    capacities: tuple[int, ...], stride: int, replicas: int, ranks: tuple[int, ...], zero_degree: int | None = None
) -> Sharding:
    """How ZeRO shards a stage at offset 0 (PROBLEM.md section 4).

    Many candidates and orders of ranks share answers: Mixtral 8x7B on 64 H100 takes 1.2 times as long without the cache
    (2026-11-23).

    Args:
        capacities: devices per group of each level.
        stride: devices from one replica's block to the next one's.
        replicas: data-parallel degree `d`.
        ranks: offsets inside the block that hold the same parameters, fewer than `stride` all of them.
        zero_degree: devices of a shard group, which divides those that hold the same parameters unless it is the
            larger; None: all of them.
    """
    members = numpy.add.outer(numpy.arange(replicas) * stride, numpy.array(sorted(ranks))).ravel()
    whole = shape_of(members, capacities)
    if zero_degree is None or zero_degree >= len(members):
        return Sharding(whole, len(members), (whole,), len(members))
    runs = members.reshape(-1, zero_degree)
    return Sharding(
        whole,
        len(members),
        tuple(dict.fromkeys(shape_of(run, capacities) for run in runs)),
        zero_degree,
        tuple(dict.fromkeys(shape_of(alike, capacities) for alike in runs.T)),
    )


class ZeroTable(NamedTuple):
    """What one ZeRO stage adds.

    Communication has a row of seconds and, where the candidate has ports, a row for each level of the seconds for which
    a device's port there is occupied (PROBLEM.md section 4, Ports).

    Attributes:
        often: communication per micro-batch, whatever hides, shape `(rows, stages)`.
        once: communication once per batch, whatever hides, shape `(rows, stages)`.
        update: seconds of the optimizer step, shape `(stages,)`.
        memory: bytes of state, and of what is gathered of it, shape `(stages,)`.
        gathering: seconds of `often` in forward passes, for which weights are gathered, shape `(stages,)`.
    """

    often: Array
    once: Array
    update: Array
    memory: Array
    gathering: Array


def zero_tables(
    instance: Instance, configuration: Configuration, sums: CandidateSums, stages: Stages, zeros: Sequence[int]
) -> dict[int, ZeroTable]:
    """Communication, update and state memory of each of `zeros`, ZeRO stages (the table of PROBLEM.md section 4)."""
    count, ports = len(stages), sums.candidate.busy is not None
    rows = 1 + len(instance.cluster.levels) if ports else 1
    tables = {zero: ZeroTable(*numpy.zeros((2, rows, count)), *numpy.zeros((3, count))) for zero in zeros}
    stride = configuration.size if configuration.rank_order == "pp-inner" else sums.candidate.width
    effective, copies = {instance.space.effective_zero(zero) for zero in tables}, configuration.copies
    for zero, table in tables.items():
        table.memory.fill(sums.candidate.gathered if zero >= 3 else 0.0)
    for group, *summed, pieces in sums.state:
        weights, gradients, optimizer, update = (each.over(stages) for each in summed)
        decided = (stride, configuration.replicas, group.ranks, configuration.zero_degree)
        shared = sharding(instance.cluster.capacities, *decided)
        count = shared.count
        # What several ZeRO stages send alike is priced once.
        if 1 in effective:
            scatter = _slowest(instance, "reduce_scatter", gradients, shared.shards, count, ports=ports)
        if not effective.isdisjoint({1, 2}):
            gather = _slowest(instance, "all_gather", weights, shared.shards, count, ports=ports)
        for asked, table in tables.items():
            zero = instance.space.effective_zero(asked)
            for sizes, least in ((weights, 3), (gradients, 2), (optimizer, 1)):
                held = sizes / count if zero >= least else sizes
                numpy.add(table.memory, held if copies == 1 else copies * held, out=table.memory)
            numpy.add(table.update, update / count if zero >= 1 else update, out=table.update)
            if zero >= 1 and shared.replicates:
                across = shared.members // count
                reduce = _slowest(instance, "all_reduce", gradients / count, shared.replicates, across, ports=ports)
                numpy.add(table.once, reduce, out=table.once)
            if zero == 0:
                reduce = _slowest(instance, "all_reduce", gradients, (shared.whole,), shared.members, ports=ports)
                numpy.add(table.once, reduce, out=table.once)
            elif zero == 1:
                numpy.add(table.once, scatter + gather, out=table.once)
            else:
                calls = numpy.ones(len(stages)) if pieces is None else numpy.maximum(pieces.over(stages), 1.0)
                each = _slowest(instance, "reduce_scatter", gradients / calls, shared.shards, count, ports=ports)
                numpy.add(table.often, calls * each, out=table.often)
                if zero == 2:
                    numpy.add(table.once, gather, out=table.once)
                    continue
                each = _slowest(instance, "all_gather", weights / calls, shared.shards, count, ports=ports)
                numpy.add(table.often, 2 * calls * each, out=table.often)
                numpy.add(table.gathering, calls * each[0], out=table.gathering)
    return tables


def _slowest(
    instance: Instance, kind: str, sizes: Array, shapes: Sequence[tuple[int, ...]], members: int, *, ports: bool
) -> Array:
    """Rows of `ZeroTable` for every entry of `sizes`: until groups that work side by side are all done.

    Each group has one of these shapes and so many members.
    """
    every = [collective_times(instance.collectives, kind, sizes, shape, members, instance.cluster) for shape in shapes]
    seconds = every[0] if len(every) == 1 else numpy.maximum.reduce(every)
    if not ports:
        return seconds[None]
    # Sizes repeat, and a model may be asked for one at a time.
    distinct, inverse = numpy.unique(sizes, return_inverse=True)
    model, levels = instance.collectives, instance.cluster.levels
    occupied = [port_seconds(model, kind, distinct, shape, levels, members) for shape in shapes]
    return numpy.concatenate([seconds[None], numpy.maximum.reduce(occupied)[:, inverse.reshape(-1)]])


def collective_times(
    model: CollectiveModel, kind: str, sizes: Array, shape: tuple[int, ...], members: int, cluster: Cluster
) -> Array:
    """Seconds of one collective for every entry of `sizes` (bytes); no bytes take none.

    A model may offer `times`, which takes an array of sizes; else each distinct size is asked for once.
    """
    some = sizes > 0
    if not some.all():
        result = numpy.zeros(len(sizes))
        if some.any():
            result[some] = collective_times(model, kind, sizes[some], shape, members, cluster)
        return result
    vectorised: Any = getattr(model, "times", None)
    if vectorised is not None:
        seconds = vectorised(kind, sizes, shape, cluster.levels, members=members)
        return numpy.asarray(seconds, dtype=numpy.float64)
    distinct, inverse = numpy.unique(sizes, return_inverse=True)
    seconds = [model.time(kind, float(size), shape, cluster.levels, members=members) for size in distinct]
    return numpy.array(seconds)[inverse]


def sharded(
    state: Iterable[tuple[Array | int, Array, Array, Array]],
    size: int,
    *,
    replicas: Array | int,
    zero: int,
    zero_degree: Array | int | None = None,
) -> Array:
    """Bytes of one copy of the state, sharded by a ZeRO stage, shape `(size,)`.

    Args:
        state: of each group the ranks of a block that hold the same, and its weights, gradients and optimizer, bytes
            before ZeRO, shape `(size,)` each.
        size: how many sums there are.
        replicas: data-parallel degree `d`, of all or of each.
        zero: ZeRO stage.
        zero_degree: ranks over which it shards at most; None: all.
    """
    total: Array = numpy.zeros(size)
    for ranks, weights, gradients, optimizer in state:
        sharing = numpy.minimum(replicas * ranks, numpy.inf if zero_degree is None else zero_degree) if zero else 1
        total += weights / (sharing if zero >= 3 else 1)
        total += gradients / (sharing if zero >= 2 else 1)
        total += optimizer / (sharing if zero >= 1 else 1)
    return total
