"""Levels of uniform groups, and the order in which devices form them (PROBLEM.md section 1)."""

import numpy
from attrs import field, frozen
from numpy.typing import NDArray

from nest.instance.pairs import Pairs
from nest.network.graph import Floats, Numbers
from nest.tolerances import SUM_ERROR


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


def neighbour_order(distance: NDArray[numpy.float64] | NDArray[numpy.int16]) -> Numbers:
    """Devices in the order in which a group grows from the first, nearest first.

    The next device has the least sum of distances to the block that is being filled, then to the block around it, and
    so on (blocks as in `prime_blocks`); then it is the one that comes first in the matrix. Where distances are those of
    a hierarchy (an ultrametric), every group of it comes out in one piece: a device of the innermost unfinished group
    is as near to everything before as any other, and nearer to the group itself.

    Args:
        distance: symmetric, devices by devices, any unit.
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
"""Levels of what is no hierarchy: PROBLEM.md section 1 names three (1 hop, 2 hops, remote). A hierarchy keeps its."""

WORTH = 0.1
"""Share of the stretch above 1 that a chain of levels may leave more of than a longer one."""

ROWS = 256
"""Rows of a matrix worked on together, so that what is between takes little memory."""


@frozen
class Tier:
    """One level of groups and what it says of the pairs that meet there first.

    Attributes:
        capacity: devices of a group.
        bandwidth: the least of those pairs, bytes per second and direction.
        latency: the largest of those pairs, seconds.
        hops: the most of those pairs; None: not known.
    """

    capacity: int
    bandwidth: float
    latency: float
    hops: int | None


@frozen(eq=False)
class _Blocks:
    """The worst of the pairs between every two blocks of `size` devices; of a block and itself what changes nothing.

    Attributes:
        size: devices of a block.
        bandwidth: least, blocks by blocks.
        latency: largest.
        hops: most; None: not known.
        inverse: sum of weight over time of the reference message.
    """

    size: int
    bandwidth: Floats
    latency: Floats
    inverse: Floats
    hops: Floats | None = field(default=None)

    def merged(self, factor: int) -> "_Blocks":
        """The same for blocks of `factor` of these."""
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
        """What groups of `capacity` devices say of these blocks, and the weighted stretches of their pairs."""
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
    """The levels that fit `pairs` best, devices in their order, innermost first.

    Groups are runs of the order, all of a level equally large. A level has the worst bandwidth and the worst latency of
    the pairs that meet there first, so that it promises no pair more than it has. Of all such levels those with the
    least stretch are taken, where near and far count alike: the pairs that meet first in blocks of 2, 4, 8, ... (or
    what divides the devices) have together the same weight at every size, though far pairs are many. Fewer levels are
    taken where they do nearly as well (`WORTH`).

    Args:
        pairs: at least two devices.
        message: bytes of the message that stretch is measured with.
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
    """The worst between blocks, for every size of block but the whole."""
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
    """Multiply by the weights of pairs, with sum 1: every size of block has the same for the pairs first met in it."""
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


Chain = tuple[float, tuple[int, ...]]
"""Weighted mean of the stretches of all pairs, and the capacities of the levels."""


def _chains(sizes: list[int], offered: dict[tuple[int, int], tuple[Tier, float]]) -> list[Chain]:
    """For 1, 2, ... levels the best chain of capacities; fewer where more are of no use."""
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
