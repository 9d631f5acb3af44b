"""Networks that are Cartesian products of graphs: tori, meshes, hypercubes, and others with dimensions.

The prime factors of a connected graph are unique, and their links are the classes of the transitive closure of two
relations between links: Djokovic and Winkler's, and the one of two links at a node, the only one that both other ends
reach in one hop (T. Feder, "Product graph representations", Journal of Graph Theory 16, 1992). The classes
are verified, so that no other network is taken for a product.
"""

from collections.abc import Iterator

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.instance.network import Numbers
from nest.instance.pairs import Floats

MOST_CORNERS = 4_000_000
"""Most pairs of links at a node, over all nodes: a network of 1,024 devices with 88 links each."""

LINKS_AT_ONCE = 2_000_000  # Pairs of links compared together, so that the arrays take tens of megabytes.


@frozen(eq=False)
class DeviceLinks:
    """Links between devices."""

    ends: Numbers  # Two devices of each (links by 2).
    bandwidth: Floats  # Bytes per second and direction.
    latency: Floats  # Seconds.


@frozen(eq=False)
class Product:
    """Dimensions of a network."""

    # Devices by dimensions: place of a device along each dimension. Places are numbered by the first device at each,
    # dimensions by their first links.
    place: Numbers
    sizes: tuple[int, ...]  # Places of each dimension, at least 2.
    # For each dimension the rank of every place on a walk along it: end to end of a line, or round a ring.
    along: tuple[Numbers, ...]
    hops: tuple[Numbers, ...]  # For each dimension the hops between every two of its places.
    bandwidth: tuple[float, ...]  # Of the links of each dimension, bytes per second.
    latency: tuple[float, ...]  # Of the links of each dimension, seconds.


def product(links: DeviceLinks, hops: Numbers) -> Product | None:
    """Dimensions of a network of `links`; None: it is no product of graphs with equal links.

    A prime graph has one dimension. `hops` are between every two devices.
    """
    if int((numpy.bincount(links.ends.reshape(-1)) ** 2).sum()) > MOST_CORNERS:
        return None
    found = _classes(links.ends, hops)
    dimensions = [_places(links.ends[found != each], len(hops)) for each in range(int(found.max()) + 1)]
    alike = all(
        len(numpy.unique(figures[found == each])) == 1
        for figures in (links.bandwidth, links.latency)
        for each in range(len(dimensions))
    )
    if not alike or not _is_product(links.ends, found, dimensions):
        return None
    representative = [int(numpy.argmax(found == each)) for each in range(len(dimensions))]
    return Product(
        place=numpy.stack(dimensions, axis=1),
        sizes=tuple(int(places.max()) + 1 for places in dimensions),
        along=tuple(_walked(places[links.ends[found == each]]) for each, places in enumerate(dimensions)),
        hops=tuple(_hops_along(index, dimensions, hops) for index in range(len(dimensions))),
        bandwidth=tuple(float(links.bandwidth[link]) for link in representative),
        latency=tuple(float(links.latency[link]) for link in representative),
    )


def _classes(ends: Numbers, hops: Numbers) -> Numbers:
    """Class of each link, numbered by their first links."""
    leader = numpy.arange(len(ends))
    for one, others in _related(ends, hops):
        same = numpy.unique(leader[numpy.append(others, one)])
        if len(same) > 1:
            leader[numpy.isin(leader, same)] = same[0]
    first, classes = numpy.unique(leader, return_inverse=True)
    order = numpy.argsort([int(numpy.argmax(leader == each)) for each in first], kind="stable")
    ranks: Numbers = numpy.argsort(order, kind="stable")[classes]
    return ranks


def _related(ends: Numbers, hops: Numbers) -> Iterator[tuple[int, Numbers]]:
    """Links with others of their class; enough for the same closure as all.

    Djokovic and Winkler: links `xy` and `uv` with `d(x,u) + d(y,v) != d(x,v) + d(y,u)`; it is enough to compare the
    links of a spanning tree with all (Feder, lemma 4).
    """
    tree = _spanning(ends, len(hops))
    at_once = max(1, LINKS_AT_ONCE // len(ends))
    for start in range(0, len(tree), at_once):
        chosen = tree[start : start + at_once]
        one, two = hops[ends[chosen, 0]], hops[ends[chosen, 1]]
        differ = one[:, ends[:, 0]] + two[:, ends[:, 1]] != one[:, ends[:, 1]] + two[:, ends[:, 0]]
        for link, row in zip(chosen.tolist(), differ, strict=True):
            yield link, numpy.flatnonzero(row)
    yield from _corners(ends, hops)


def _corners(ends: Numbers, hops: Numbers) -> Iterator[tuple[int, Numbers]]:
    """Links with others at the same device, if only that is one hop from the other ends of both."""
    adjacent = (hops == 1).astype(numpy.float32)
    common = adjacent @ adjacent
    device = numpy.concatenate([ends[:, 0], ends[:, 1]])
    other, link = numpy.concatenate([ends[:, 1], ends[:, 0]]), numpy.tile(numpy.arange(len(ends)), 2)
    order = numpy.argsort(device, kind="stable")
    begin = numpy.searchsorted(device[order], numpy.arange(len(hops) + 1))
    for first, end in zip(begin[:-1].tolist(), begin[1:].tolist(), strict=True):
        around = order[first:end]
        alone = common[other[around][:, None], other[around][None, :]] == 1
        for index, row in enumerate(alone):
            partners = around[: index + 1][row[: index + 1]]
            if len(partners):
                yield int(link[around[index]]), link[partners]


def _spanning(ends: Numbers, count: int) -> Numbers:
    """Links of a spanning tree, found breadth first."""
    order = numpy.argsort(ends.reshape(-1), kind="stable")
    begin = numpy.searchsorted(ends.reshape(-1)[order], numpy.arange(count + 1))
    seen, front, tree = {0}, [0], []
    while front:
        reached = []
        for node in front:
            for place in order[begin[node] : begin[node + 1]].tolist():
                other = int(ends.reshape(-1)[place ^ 1])
                if other not in seen:
                    seen.add(other)
                    reached.append(other)
                    tree.append(place // 2)
        front = reached
    return numpy.array(tree, dtype=numpy.int64)


def _places(others: Numbers, count: int) -> Numbers:
    """Place of each device along a dimension: devices joined by links of the other dimensions (`others`) share it."""
    place = numpy.arange(count)
    while True:
        least = place.copy()
        numpy.minimum.at(least, others[:, 0], place[others[:, 1]])
        numpy.minimum.at(least, others[:, 1], place[others[:, 0]])
        least = least[least]
        if (least == place).all():
            found: Numbers = numpy.unique(place, return_inverse=True)[1].reshape(-1)
            return found
        place = least


def _is_product(ends: Numbers, classes: Numbers, dimensions: list[Numbers]) -> bool:
    """True if every combination of places is one device, and parallel lines link the same places."""
    sizes = [int(places.max()) + 1 for places in dimensions]
    count = len(dimensions[0])
    if numpy.prod([float(size) for size in sizes]) != count:
        return False
    keys = numpy.zeros(count, dtype=numpy.int64)
    for size, places in zip(sizes, dimensions, strict=True):
        keys = keys * size + places
    if len(numpy.unique(keys)) < count:
        return False
    for index, (size, places) in enumerate(zip(sizes, dimensions, strict=True)):
        own = places[ends[classes == index]]
        if (own[:, 0] == own[:, 1]).any():
            return False
        joined = numpy.unique(own.min(axis=1) * size + own.max(axis=1))
        if len(own) != len(joined) * (count // size):
            return False
    return True


def _walked(joined: Numbers) -> Numbers:
    """Rank of each place on a walk over links between places, from an end, or from place 0 without an end."""
    size = int(joined.max()) + 1
    adjacent: list[set[int]] = [set() for _ in range(size)]
    for one, two in joined.tolist():
        adjacent[one].add(two)
        adjacent[two].add(one)
    here: int | None = min(range(size), key=lambda each: (len(adjacent[each]), each))
    rank: dict[int, int] = {}
    while here is not None:
        rank[here] = len(rank)
        ahead = [each for each in sorted(adjacent[here]) if each not in rank]
        waiting = (each for each in range(size) if each not in rank)
        here = ahead[0] if ahead else next(waiting, None)
    return numpy.array([rank[each] for each in range(size)], dtype=numpy.int64)


def _hops_along(index: int, dimensions: list[Numbers], hops: Numbers) -> NDArray[numpy.int64]:
    """Hops between the places of one dimension, on the line of the first device."""
    same = numpy.ones(len(hops), dtype=bool)
    for other, places in enumerate(dimensions):
        if other != index:
            same &= places == places[0]
    line = numpy.flatnonzero(same)
    line = line[numpy.argsort(dimensions[index][line], kind="stable")]
    result: Numbers = hops[numpy.ix_(line, line)]
    return result
