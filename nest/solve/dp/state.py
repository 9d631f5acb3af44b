"""Bytes of parameters, gradients and optimizer state, sharded by ZeRO (PROBLEM.md section 4)."""

from collections.abc import Iterable

import numpy

from nest.instance import Array, ParameterGroup


def sharded(
    state: Iterable[tuple[ParameterGroup, Array, Array, Array]],
    size: int,
    *,
    replicas: int,
    zero: int,
    zero_degree: int | None = None,
) -> Array:
    """Bytes of one copy of the state, sharded by a ZeRO stage, shape `(size,)`.

    Args:
        state: of each group its weights, gradients and optimizer, bytes before ZeRO, shape `(size,)` each.
        size: how many sums there are.
        replicas: data-parallel degree `d`.
        zero: ZeRO stage.
        zero_degree: ranks over which it shards at most; None: all.
    """
    total: Array = numpy.zeros(size)
    for group, weights, gradients, optimizer in state:
        sharing = replicas * len(group.ranks) if zero else 1
        sharing = min(sharing, zero_degree or sharing)
        total += weights / (sharing if zero >= 3 else 1)
        total += gradients / (sharing if zero >= 2 else 1)
        total += optimizer / (sharing if zero >= 1 else 1)
    return total
