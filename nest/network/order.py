"""Devices in an order in which neighbours in the network lie side by side."""

import numpy
from numpy.typing import NDArray

from nest.network.graph import Floats, Numbers


def divisors(number: int) -> list[int]:
    """The divisors of `number`, ascending."""
    small = [each for each in range(1, int(number**0.5) + 1) if number % each == 0]
    return sorted({*small, *(number // each for each in small)})


def prime_blocks(number: int) -> list[int]:
    """Sizes of blocks within blocks, each the smallest prime times the one before, up to `number`."""
    blocks = [1]
    while blocks[-1] < number:
        rest = number // blocks[-1]
        blocks.append(blocks[-1] * next(p for p in range(2, rest + 1) if rest % p == 0))
    return blocks[1:]


def grown(distance: NDArray[numpy.float64] | NDArray[numpy.int16], start: int = 0) -> Numbers:
    """Devices in the order in which a group grows from `start`, nearest first.

    The next device has the least sum of distances to the block that is being filled, then to the block around it, and
    so on (blocks as in `prime_blocks`); then it is the one that comes first in the matrix. Where distances are those of
    a hierarchy (an ultrametric), every group of it comes out in one piece: a device of the innermost unfinished group
    is as near to everything before as any other, and nearer to the group itself.

    Args:
        distance: symmetric, devices by devices, any unit.
        start: the first device.
    """
    count = len(distance)
    blocks = prime_blocks(count)
    sums: list[Floats] = [numpy.zeros(count) for _ in blocks]
    waiting = numpy.ones(count, dtype=bool)
    order = numpy.empty(count, dtype=numpy.int64)
    chosen = start
    for position in range(count):
        order[position] = chosen
        waiting[chosen] = False
        for size, total in zip(blocks, sums, strict=True):
            if (position + 1) % size == 0:
                total[:] = 0.0
            else:
                total += distance[chosen]
        left = numpy.flatnonzero(waiting)
        for size, total in zip(blocks, sums, strict=True):
            if len(left) > 1 and (position + 1) % size:
                values = total[left]
                left = left[values == values.min()]
        chosen = int(left[0]) if len(left) else start
    return order
