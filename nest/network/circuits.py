"""Circuits that visit each device once, with a fast slowest step (bottleneck travelling salesman problem)."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import permutations

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.instance.network import Numbers
from nest.instance.pairs import Floats

EXACT = 9  # Most members for which every circuit is tried: 40,320 of them.
BANDWIDTHS = 6  # Bandwidths at which the search tries less latency, with more members than `EXACT`.
TRIES = 5  # Latencies tried for each of these, from the least that connections allow, ever further apart.
BRANCHES = 12  # Successors of a member that the search tries.
VISITS = 40  # Steps for each member before a search gives up; backtracking takes most of them.

Mask = NDArray[numpy.bool_]


@frozen(eq=False)
class Circuit:
    """A circuit and its slowest steps."""

    order: Numbers  # Members along it, as rows of the matrices; begins with 0.
    latency: float  # Largest of its steps, seconds.
    bandwidth: float  # Smallest of its steps, bytes per second.


def circuits(
    bandwidth: Floats, latency: Floats, hops: Numbers, guesses: Iterable[Sequence[int]] = ()
) -> tuple[Circuit, ...]:
    """Undominated circuits in latency and bandwidth, by ascending latency.

    Ties go to the fewest hops, then to lexicographic order. Complete for up to `EXACT` members; for more, the best that
    a search with a fixed number of steps finds, which never misses an optimum that connections alone determine.

    Args:
        bandwidth: from each member to each other, bytes per second.
        latency: likewise, seconds.
        hops: likewise, links.
        guesses: circuits to try as well, with too many members for all.
    """
    count = len(bandwidth)
    tables = bandwidth, latency, hops
    apart = ~numpy.eye(count, dtype=bool)
    if count <= 3 and (count < 3 or all((table == table.T).all() for table in tables)):
        return _fronts(numpy.arange(count)[None, :], tables)
    if all((table[apart] == table[0, 1]).all() for table in tables):
        return _fronts(numpy.arange(count)[None, :], tables)
    if count <= EXACT:
        return _fronts(all_orders(count), tables)
    known = [list(range(count)), *map(list, guesses)]
    return _fronts(_canonical([*known, *_searched(bandwidth, latency, _fronts(_canonical(known), tables))]), tables)


@cache
def all_orders(count: int) -> NDArray[numpy.int64]:
    """Every circuit over so many members, in lexicographic order."""
    return numpy.array([(0, *rest) for rest in permutations(range(1, count))], dtype=numpy.int64)


def _canonical(orders: Iterable[Sequence[int]]) -> NDArray[numpy.int64]:
    """Rotate circuits to start at member 0, and sort them."""
    turned = ([*order[order.index(0) :], *order[: order.index(0)]] for order in map(list, orders))
    return numpy.array(sorted(turned), dtype=numpy.int64)


def _fronts(orders: NDArray[numpy.int64], tables: tuple[Floats, Floats, Numbers]) -> tuple[Circuit, ...]:
    """Those of `orders` that no other beats, in the order of `circuits`."""
    bandwidth, latency, hops = tables
    steps = orders * len(bandwidth) + numpy.roll(orders, -1, axis=1)
    narrowest = bandwidth.reshape(-1)[steps].min(axis=1)
    longest = latency.reshape(-1)[steps].max(axis=1)
    crossed = hops.reshape(-1)[steps].sum(axis=1)
    front: list[Circuit] = []
    for row in numpy.lexsort((crossed, -narrowest, longest)).tolist() if len(orders) > 1 else [0]:
        if not front or narrowest[row] > front[-1].bandwidth:
            front.append(Circuit(orders[row], float(longest[row]), float(narrowest[row])))
            if narrowest[row] == narrowest.max():
                break
    return tuple(front)


def cycles_fit(allowed: Mask) -> int:
    """Upper bound on the members of a cycle of at least three with steps between allowed pairs.

    They are in one connected piece, and each has at least two neighbours (the 2-core of the graph). `allowed` is
    symmetric, devices by devices; its diagonal does not count.
    """
    return _largest_piece(allowed, _core(allowed))


def _core(allowed: Mask) -> Mask:
    """Remove members with fewer than two neighbours repeatedly."""
    allowed = allowed & ~numpy.eye(len(allowed), dtype=bool)
    degree = allowed.sum(axis=1)
    inside = numpy.ones(len(allowed), dtype=bool)
    while len(out := numpy.flatnonzero(inside & (degree < 2))):
        inside[out] = False
        degree -= allowed[:, out].sum(axis=1)
    return inside


def _largest_piece(allowed: Mask, inside: Mask) -> int:
    waiting, largest = inside.copy(), 0
    while len(left := numpy.flatnonzero(waiting)):
        piece = numpy.zeros(len(waiting), dtype=bool)
        front = left[:1]
        while len(front):
            piece[front] = True
            front = numpy.flatnonzero(allowed[front].any(axis=0) & inside & ~piece)
        waiting &= ~piece
        largest = max(largest, int(piece.sum()))
    return largest


def _searched(bandwidth: Floats, latency: Floats, known: tuple[Circuit, ...]) -> list[list[int]]:
    """Circuits with less latency than those known, for some of the possible bandwidths."""
    count = len(bandwidth)
    wide, quick = numpy.minimum(bandwidth, bandwidth.T), numpy.maximum(latency, latency.T)
    apart = ~numpy.eye(count, dtype=bool)
    values = numpy.unique(wide[apart])
    most = _last_true(len(values), lambda index: cycles_fit(wide >= values[index]) == count)
    picks = numpy.unique(numpy.linspace(0, most, min(most + 1, BANDWIDTHS)).astype(int))[::-1]
    found = []
    for least in values[picks].tolist():
        best = min((each.latency for each in known if each.bandwidth >= least), default=numpy.inf)
        order = _quicker((wide >= least) & apart, quick, best)
        if order is not None:
            found.append(order)
    return found


def _quicker(enough: Mask, quick: Floats, best: float) -> list[int] | None:
    """Circuit of allowed steps that are all faster than `best`; None: none found."""
    delays = numpy.unique(quick[enough])[::-1]
    first = _last_true(len(delays), lambda index: cycles_fit(enough & (quick <= delays[index])) == len(quick))
    further = 0
    for _ in range(TRIES):
        place = first - further
        if place < 0 or delays[place] >= best:
            return None
        order = _hamiltonian(enough & (quick <= delays[place]))
        if order is not None:
            return order
        further = 2 * further + 1
    return None


def _last_true(count: int, holds: Callable[[int], bool]) -> int:
    """Last of `count` places at which `holds` is true; it is monotone, and true at the first."""
    low, high = 0, count - 1
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _hamiltonian(allowed: Mask) -> list[int] | None:
    """Circuit over all members with allowed steps; None: none found in `VISITS` steps per member.

    Depth first, fewest onward steps first (Warnsdorff's rule), then the first listed.
    """
    count = len(allowed)
    neighbours = [sum(1 << other for other in numpy.flatnonzero(row).tolist()) for row in allowed]
    start = min(range(count), key=lambda member: (neighbours[member].bit_count(), member))
    free = ((1 << count) - 1) & ~(1 << start)
    order, waiting = [start], [_successors(neighbours, start, free)]
    for _ in range(VISITS * count):
        if waiting[-1]:
            member = waiting[-1].pop()
            order.append(member)
            free &= ~(1 << member)
            if not free and neighbours[member] >> start & 1:
                return order
            open_start = neighbours[start] & free
            waiting.append(_successors(neighbours, member, free) if open_start else [])
        else:
            waiting.pop()
            free |= 1 << order.pop()
            if not order:
                return None
    return None


def _successors(neighbours: list[int], member: int, free: int) -> list[int]:
    """Free neighbours, best last."""
    left, found = neighbours[member] & free, list[tuple[int, int]]()
    while left and len(found) < BRANCHES:
        lowest = left & -left
        other = lowest.bit_length() - 1
        found.append(((neighbours[other] & free).bit_count(), other))
        left ^= lowest
    return [other for _, other in sorted(found, reverse=True)]
