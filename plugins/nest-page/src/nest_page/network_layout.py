"""Positions of the nodes of a network in its drawing: points of a grid, tiers of switches, or a spring layout.

Coordinates are those of the middle of each node, px, with `Layout.width` and `height` around them; nodes are numbered.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from statistics import fmean

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest_page.svg import NARROW, WIDTHS

Point = tuple[float, float]
Ends = Sequence[tuple[int, int]]
"""The two nodes of each link."""

LEAST_PITCH, COMFORTABLE, MOST_PITCH = 20.0, 34.0, 56.0
"""From one device of a grid to the next, px: what grids of many devices shrink to, slices of one, and all at most."""

LEAST_SIDE, MOST_SIDE = 12.0, 26.0
"""Side of a device's cell, px."""

TALL = 1100.0
"""Height beyond which drawings do not grow by choice, px."""

LABEL = 16.0
"""Room for the name of a slice above it, px."""


@frozen
class Layout:
    """Positions of nodes.

    Attributes:
        at: middle of each node, px.
        side: of a device's cell, px.
        width: of the drawing, px.
        height: of the drawing, px.
        stubs: links that are drawn as two short lines, by their numbers: offsets of their ends from the middle of each
            end.
        labels: names of parts of the drawing: left end and base line, px, and words.
    """

    at: tuple[Point, ...]
    side: float
    width: float
    height: float
    stubs: Mapping[int, tuple[Point, Point]] = {}
    labels: tuple[tuple[float, float, str], ...] = ()


def grid_layout(shape: Sequence[int], ends: Ends, room: float) -> Layout | None:
    """Devices at the points of a grid, a row, a plane or slices of a third dimension; None: it has more dimensions.

    Links that join no neighbours of the drawing, those that close rows and those between slices, are stubs.

    Args:
        shape: devices along each dimension, the last varying fastest in their numbers; long ones are folded or turned.
        ends: two devices that differ in one coordinate, for each link.
        room: that the drawing may take, px.
    """
    dimensions = [dimension for dimension, length in enumerate(shape) if length > 1]
    if len(dimensions) > 3:
        return None
    points = [tuple(int(each) for each in point) for point in numpy.ndindex(*shape)]
    if len(dimensions) == 1:
        return _folded([point[dimensions[0]] for point in points], ends, room)
    *across, rows, columns = dimensions
    if shape[columns] * LEAST_PITCH > room or TALL < shape[rows] * LEAST_PITCH <= room:
        rows, columns = columns, rows
    slices = shape[across[0]] if across else 1
    beside, pitch = _pitch(slices, shape[rows], shape[columns], room)
    side = _side(pitch)
    block = ((shape[columns] + (0.6 if across else 0)) * pitch, shape[rows] * pitch + (LABEL if across else 0))
    corners = [((each % beside) * block[0], each // beside * block[1]) for each in range(slices)]
    below = LABEL if across else 0
    at = []
    for point in points:
        left, top = corners[point[across[0]] if across else 0]
        at.append((left + (point[columns] + 0.5) * pitch, top + below + (point[rows] + 0.5) * pitch))
    ways = {columns: (1.0, 0.0), rows: (0.0, 1.0), **dict.fromkeys(across, (0.7, -0.7))}
    stubs = {}
    for index, (one, two) in enumerate(ends):
        dimension = next(each for each in dimensions if points[one][each] != points[two][each])
        step = points[two][dimension] - points[one][dimension]
        if abs(step) > 1 or dimension in across:
            # What closes a row leaves it at both ends.
            sign = (1 if step > 0 else -1) * (1 if abs(step) == 1 else -1)
            stubs[index] = _stub(ways[dimension], sign, side, pitch), _stub(ways[dimension], -sign, side, pitch)
    labels = [
        (left + (pitch - side) / 2, top + LABEL - 4, _slice(shape, across[0], each))
        for each, (left, top) in enumerate(corners)
        if across
    ]
    height = -(-slices // beside) * block[1]
    return Layout(tuple(at), side, beside * block[0], height, stubs, tuple(labels))


def _pitch(slices: int, rows: int, columns: int, room: float) -> tuple[int, float]:
    """Slices side by side, as many as keep devices at ease, and from one device to the next, px."""
    between = 0.6 if slices > 1 else 0
    beside = next((each for each in range(slices, 1, -1) if room / (each * (columns + between)) >= COMFORTABLE), 1)
    high = -(-slices // beside)
    beside = -(-slices // high)
    tallest = max(LEAST_PITCH, TALL / (high * rows))
    return beside, min(MOST_PITCH, room / (beside * (columns + between)), tallest)


def _folded(places: Sequence[int], ends: Ends, room: float) -> Layout:
    """A row, folded where it is wider than the room: every second line runs backwards, so that neighbours stay."""
    count = len(places)
    pitch = min(MOST_PITCH, max(COMFORTABLE, room / count))
    lines = -(-count // int(room / pitch))
    columns = -(-count // lines)
    side = _side(pitch)
    at = []
    for place in places:
        row, column = divmod(place, columns)
        at.append((((columns - 1 - column if row % 2 else column) + 0.5) * pitch, (row + 0.5) * pitch))
    stubs = {}
    for index, (one, two) in enumerate(ends):
        if abs(places[one] - places[two]) > 1:
            onwards = -1 if (count - 1) // columns % 2 else 1
            outer = _stub((1.0, 0.0), -1, side, pitch), _stub((1.0, 0.0), onwards, side, pitch)
            stubs[index] = outer if places[one] < places[two] else (outer[1], outer[0])
    return Layout(tuple(at), side, columns * pitch, lines * pitch, stubs)


def _side(pitch: float) -> float:
    """Of a cell among cells so far apart."""
    return max(LEAST_SIDE, min(MOST_SIDE, pitch / 2))


def _stub(way: Point, sign: int, side: float, pitch: float) -> Point:
    """End of a short line: a third of the room between cells outside of its own."""
    reach = side / 2 + (pitch - side) / 3
    diagonal = 1 / 0.7 if way[0] and way[1] else 1.0  # From the corner of the cell, not from its edge.
    return way[0] * diagonal * sign * reach, way[1] * diagonal * sign * reach


def _slice(shape: Sequence[int], dimension: int, place: int) -> str:
    """The coordinates that the devices of a slice share, others as `*`."""
    return ",".join(
        str(place) if each == dimension else "*" if length > 1 else "0" for each, length in enumerate(shape)
    )


TIER_PITCH, STANDING_PITCH, TIER_HEIGHT, MARGIN = 16.0, 20.0, 90.0, 20.0
"""From one device of a tier to the next, at least, and below each other; from one tier to the next; and around them,
px."""


def tier_layout(is_device: Sequence[bool], ends: Ends, room: float) -> Layout | None:
    """Devices in a row and switches above, by their hops to the nearest device; None: links join nodes of a tier.

    Switches that join devices alone lie below them where others of their tier lead further up. Devices stand in the
    order of their numbers, switches by the mean place of what they join below. Where a row is too long, tiers stand
    side by side; None also where that were too high.
    """
    tiers = _tiers(is_device, ends)
    if tiers is None:
        return None
    longest = max(map(len, tiers))
    lying = longest * TIER_PITCH <= room
    if not lying and longest * STANDING_PITCH > TALL:
        return None
    pitch = min(MOST_PITCH, room / longest) if lying else STANDING_PITCH
    length = longest * pitch
    apart = TIER_HEIGHT if lying else min(TIER_HEIGHT, (room - 2 * MARGIN) / (len(tiers) - 1))
    high = (len(tiers) - 1) * apart + 2 * MARGIN
    at: dict[int, Point] = {}
    for tier, members in enumerate(tiers):
        across = MARGIN + tier * apart
        for place, node in enumerate(members):
            along = (place + 0.5) * length / len(members)
            at[node] = (along, high - across) if lying else (across, along)
    width, height = (length, high) if lying else (high, length)
    return Layout(tuple(at[node] for node in range(len(is_device))), min(MOST_SIDE, pitch - 4), width, height)


def _tiers(is_device: Sequence[bool], ends: Ends) -> list[list[int]] | None:
    """The nodes of each tier in order, lowest tier first."""
    neighbours = _neighbours(len(is_device), ends)
    tiers = [[node for node, device in enumerate(is_device) if device]]
    tier_of = dict.fromkeys(tiers[0], 0)
    while reached := sorted({each for node in tiers[-1] for each in neighbours[node]} - set(tier_of)):
        tier_of.update(dict.fromkeys(reached, len(tiers)))
        tiers.append(reached)
    if len(tiers) == 1 or any(tier_of[one] == tier_of[two] for one, two in ends):
        return None
    below = [node for node in tiers[1] if all(tier_of[each] == 0 for each in neighbours[node])]
    if len(tiers) > 2 and below:
        tiers[1] = [node for node in tiers[1] if node not in below]
        tiers.insert(0, below)
    devices = next(index for index, tier in enumerate(tiers) if is_device[tier[0]])
    place = _places(tiers[devices])
    for index in [*range(devices + 1, len(tiers)), *range(devices)]:
        tiers[index] = _by_place(tiers[index], place, neighbours)
        place |= _places(tiers[index])
    return tiers


def _places(tier: Sequence[int]) -> dict[int, float]:
    """Positions of a tier's nodes along the drawing, from 0 to 1."""
    return {node: (index + 0.5) / len(tier) for index, node in enumerate(tier)}


def _by_place(tier: Sequence[int], place: Mapping[int, float], neighbours: Sequence[Sequence[int]]) -> list[int]:
    """A tier in the order of the mean place of those neighbours whose place is known."""
    mean = {node: fmean(place[each] for each in neighbours[node] if each in place) for node in tier}
    return sorted(tier, key=lambda node: (round(mean[node], 9), node))


def _neighbours(count: int, ends: Ends) -> list[list[int]]:
    neighbours: list[list[int]] = [[] for _ in range(count)]
    for one, two in ends:
        neighbours[one].append(two)
        neighbours[two].append(one)
    return neighbours


SEED = 1
"""Of the spring layout's first places."""

STEPS = 200
"""Of the spring layout, after which nodes hardly move."""


def spring_layout(count: int, ends: Ends, room: float) -> Layout:
    """Nodes that push each other away, along links that pull them together (Fruchterman and Reingold, 1991).

    Nodes that lie on each other are moved apart afterwards. The same links give the same places.
    """
    at = _sprung(count, tuple(ends))
    span = at.max(axis=0) - at.min(axis=0)
    span[span == 0] = 1.0
    narrow = room < NARROW
    area, side = count * (45.0 if narrow else 60.0) ** 2, 14.0 if narrow else 20.0
    width = min(room, max(WIDTHS[-1], math.sqrt(1.8 * area)))
    height = max(0.4 * width, min(TALL, area / width))
    size = numpy.array([width, height]) - 2 * side
    at = _apart((at - at.min(axis=0)) / span * size + side, 1.6 * side, size + side, side)
    return Layout(tuple((round(x, 1), round(y, 1)) for x, y in at.tolist()), side, width, height)


@lru_cache(maxsize=1)
def _sprung(count: int, ends: tuple[tuple[int, int], ...]) -> NDArray[numpy.float64]:
    """Positions of nodes by networkx, without unit; the drawings of a figure differ only in size."""
    import networkx

    graph: networkx.Graph[int] = networkx.Graph()
    graph.add_nodes_from(range(count))
    graph.add_edges_from(ends)
    places = networkx.spring_layout(graph, seed=SEED, iterations=STEPS)
    return numpy.array([places[node] for node in range(count)])


def _apart(
    at: NDArray[numpy.float64], least: float, most: NDArray[numpy.float64], margin: float
) -> NDArray[numpy.float64]:
    """Places of which no two are nearer than `least`, as far as a few dozen small steps bring that about."""
    count = len(at)
    for _ in range(60):
        away = at[:, None, :] - at[None, :, :]
        far = numpy.sqrt((away**2).sum(axis=2))
        close = (far < least) & ~numpy.eye(count, dtype=bool)
        if not close.any():
            break
        # Nodes at one place part along the order of their numbers.
        order = numpy.sign(numpy.arange(count)[:, None] - numpy.arange(count)[None, :])
        way = numpy.where(far[:, :, None] > 0, away, order[:, :, None])
        unit = way / numpy.sqrt((way**2).sum(axis=2) + numpy.eye(count))[:, :, None]
        push = numpy.where(close, (least - far) / 2, 0.0)
        at = numpy.clip(at + (unit * push[:, :, None]).sum(axis=1), margin, most)
    return at
