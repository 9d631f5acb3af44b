"""How ZeRO shards over the devices of a plan, and the bytes of state that it leaves (PROBLEM.md section 4)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy
from attrs import frozen

from nest.instance import Array, shape_of
from nest.records import Record

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
