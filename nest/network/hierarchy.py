"""Levels of uniform groups, and the order of devices that forms them (PROBLEM.md section 1)."""

import numpy
from attrs import field, frozen
from numpy.typing import NDArray

from nest.instance.pairs import Pairs
from nest.network.graph import Floats, Numbers
from nest.tolerances import SUM_ERROR


def divisors(number: int) -> list[int]:
    """Divisors of `number`, ascending."""
    small = [each for each in range(1, int(number**0.5) + 1) if number % each == 0]
    return sorted({*small, *(number // each for each in small)})


def prime_blocks(number: int) -> list[int]:
    """Sizes of nested blocks, each the smallest prime times the one before, up to `number`."""
    blocks = [1]
    while blocks[-1] < number:
        rest = number // blocks[-1]
        blocks.append(blocks[-1] * next(p for p in range(2, rest + 1) if rest % p == 0))
    return blocks[1:]


def neighbour_order(distance: NDArray[numpy.float64] | NDArray[numpy.int16]) -> Numbers:
    """Order of devices in which a group grows from the first, nearest first.

    The next device has the least sum of distances to the block being filled, then to the block around it, and so on
    (blocks of `prime_blocks`); ties go to the first in the matrix. With the distances of a hierarchy (an ultrametric),
    every group comes out contiguous: a device of the innermost unfinished group is as near to everything before as any
    other, and nearer to the group itself. `distance` is symmetric, devices by devices, in any unit.
    """
    count = len(distance)
    blocks = prime_blocks(count)
    sums: list[Floats] = [numpy.zeros(count) for _ in blocks]
    waiting = numpy.ones(count, dtype=bool)
    order = numpy.empty(count, dtype=numpy.int64)
    chosen = 0
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
        chosen = int(left[0]) if len(left) else 0
    return order


MOST_LEVELS = 3
"""Levels of a network that is no hierarchy: PROBLEM.md section 1 names three (1 hop, 2 hops, remote). A hierarchy keeps
its own."""

WORTH = 0.1  # Share of the stretch above 1 that a chain of levels may leave more of than a longer one.
ROWS = 256  # Rows of a matrix processed together, to limit memory.


@frozen
class Tier:
    """One level of groups, with the worst of the pairs that meet there first."""

    capacity: int  # Devices of a group.
    bandwidth: float  # Least, bytes per second and direction.
    latency: float  # Largest, seconds.
    hops: int | None  # Most; None: unknown.


@frozen(eq=False)
class _Blocks:
    """Worst of the pairs between every two blocks of `size` devices; neutral for a block and itself."""

    size: int
    bandwidth: Floats  # Least, blocks by blocks.
    latency: Floats  # Largest.
    inverse: Floats  # Sum of weight over time of the reference message.
    hops: Floats | None = field(default=None)  # Most; None: unknown.

    def merged(self, factor: int) -> "_Blocks":
        """Merge each `factor` blocks."""
        starts = numpy.arange(0, len(self.bandwidth), factor)

        def over(how: numpy.ufunc, matrix: Floats, itself: float) -> Floats:
            extremes: Floats = how.reduceat(how.reduceat(matrix, starts, axis=1), starts, axis=0)
            numpy.fill_diagonal(extremes, itself)
            return extremes

        return _Blocks(
            size=self.size * factor,
            bandwidth=over(numpy.minimum, self.bandwidth, numpy.inf),
            latency=over(numpy.maximum, self.latency, 0.0),
            inverse=over(numpy.add, self.inverse, 0.0),
            hops=None if self.hops is None else over(numpy.maximum, self.hops, 0),
        )

    def tier(self, capacity: int, message: float) -> tuple[Tier, float]:
        """Level of groups of `capacity` devices, and the weighted stretches of their pairs."""
        factor = capacity // self.size
        groups = numpy.arange(len(self.bandwidth) // factor)

        def inside(matrix: Floats) -> Floats:
            if len(groups) == 1:
                return matrix
            entries: Floats = matrix.reshape(len(groups), factor, len(groups), factor)[groups, :, groups, :]
            return entries

        bandwidth, latency = float(inside(self.bandwidth).min()), float(inside(self.latency).max())
        hops = None if self.hops is None else int(inside(self.hops).max())
        seconds = latency + message / bandwidth
        return Tier(capacity, bandwidth, latency, hops), seconds * float(inside(self.inverse).sum())


def tiers(pairs: Pairs, message: float) -> tuple[Tier, ...]:
    """Levels that fit `pairs` best, devices in their order, innermost first.

    Groups are runs of the order, equal in size within a level. A level has the worst bandwidth and latency of the pairs
    that meet there first, so that it promises no pair too much. Of all such levels those with the least stretch are
    taken, with near and far pairs counted alike: the pairs that first meet in blocks of 2, 4, 8, ... (or other
    divisors) have the same total weight at every size. Fewer levels are taken if they are nearly as good (`WORTH`).

    Args:
        pairs: at least two devices.
        message: bytes of the message for which stretch is measured.
    """
    sizes = divisors(pairs.size)
    offered: dict[tuple[int, int], tuple[Tier, float]] = {}
    for inner, blocks in _by_size(pairs, sizes, message).items():
        for outer in sizes:
            if outer > inner and outer % inner == 0:
                offered[inner, outer] = blocks.tier(outer, message)
    chains = _chains(sizes, offered)
    if chains[-1][0] > 1.0 + SUM_ERROR:
        chains = chains[:MOST_LEVELS]
    enough = (chains[-1][0] - 1.0) / (1.0 - WORTH) + SUM_ERROR
    capacities = next(capacities for cost, capacities in chains if cost - 1.0 <= enough)
    return tuple(offered[inner, outer][0] for inner, outer in zip((1, *capacities), capacities, strict=False))


def _by_size(pairs: Pairs, sizes: list[int], message: float) -> dict[int, _Blocks]:
    """Worst of the pairs between blocks, for every size of block except the whole."""
    inverse = pairs.seconds(message)
    numpy.fill_diagonal(inverse, numpy.inf)
    numpy.reciprocal(inverse, out=inverse)
    _weigh(inverse)
    single = _Blocks(1, pairs.bandwidth, pairs.latency, inverse, pairs.hops)  # type: ignore[arg-type]
    by_size = {1: single}
    for size in sizes[1:-1]:
        below = max(each for each in by_size if size % each == 0)
        by_size[size] = by_size[below].merged(size // below)
    return by_size


def _weigh(values: Floats) -> None:
    """Multiply by the weights of pairs, with sum 1: each block size has the same total for pairs first met in it."""
    count = len(values)
    blocks = prime_blocks(count)
    device = numpy.arange(count)
    for start in range(0, count, ROWS):
        rows = slice(start, start + ROWS)
        weights = numpy.zeros((len(device[rows]), count))
        for inner, outer in reversed(list(zip([1, *blocks], blocks, strict=False))):
            together = (device[rows] // outer)[:, None] == (device // outer)[None, :]
            weights[together] = 1.0 / (count * (outer - inner) * len(blocks))
        values[rows] *= weights


Chain = tuple[float, tuple[int, ...]]  # Weighted mean of the stretches of all pairs, and the capacities of the levels.


def _chains(sizes: list[int], offered: dict[tuple[int, int], tuple[Tier, float]]) -> list[Chain]:
    """Best chain of capacities for 1, 2, ... levels, as far as more levels help."""
    best: dict[int, Chain] = {size: (offered[1, size][1], (size,)) for size in sizes[1:]}
    chains = [best[sizes[-1]]]
    while True:
        longer: dict[int, Chain] = {}
        for (inner, outer), (_, cost) in offered.items():
            if inner in best:
                chain = (best[inner][0] + cost, (*best[inner][1], outer))
                if outer not in longer or chain < longer[outer]:
                    longer[outer] = chain
        best = longer
        if sizes[-1] not in best or best[sizes[-1]][0] >= chains[-1][0] * (1.0 - SUM_ERROR):
            return chains
        chains.append(best[sizes[-1]])
