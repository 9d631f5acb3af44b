"""ZeRO sharding over the devices of a plan, and the remaining bytes of state (PROBLEM.md section 4)."""

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
    """ZeRO sharding over devices with equal parameters (the `zero_degree` of a plan)."""

    whole: Shape  # Shape of all devices.
    members: int  # Number of devices (`z`).
    shards: tuple[Shape, ...]  # Distinct shapes of the shard groups, runs of neighbours.
    count: int  # Devices of such a group.
    # Distinct shapes of the replicate groups, with equal shards; empty if one shard group has all devices.
    replicates: tuple[Shape, ...] = ()


@lru_cache(maxsize=1 << 16)
def sharding(
    capacities: tuple[int, ...], stride: int, replicas: int, ranks: tuple[int, ...], zero_degree: int | None = None
) -> Sharding:
    """ZeRO sharding of a stage at offset 0 (PROBLEM.md section 4).

    Cached, as many candidates and rank orders share answers: Mixtral 8x7B on 64 H100 takes 1.2 times as long without
    (2026-11-23).

    Args:
        capacities: devices per group of each level.
        stride: devices from one replica's block to the next one's.
        replicas: data-parallel degree `d`.
        ranks: offsets inside the block with equal parameters, all below `stride`.
        zero_degree: devices of a shard group, which divides those with equal parameters unless it is larger; None: all.
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
        state: by group, ranks of a block with equal parameters, and bytes of weights, gradients and optimizer before
            ZeRO, shape `(size,)` each.
        replicas: data-parallel degree `d`, of all or of each.
        zero_degree: ranks over which ZeRO shards at most; None: all.
    """
    total: Array = numpy.zeros(size)
    for ranks, weights, gradients, optimizer in state:
        sharing = numpy.minimum(replicas * ranks, numpy.inf if zero_degree is None else zero_degree) if zero else 1
        total += weights / (sharing if zero >= 3 else 1)
        total += gradients / (sharing if zero >= 2 else 1)
        total += optimizer / (sharing if zero >= 1 else 1)
    return total
