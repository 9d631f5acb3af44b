"""A measured network: the bandwidth of every pair of devices as a map, with the device groups of the plan along it."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy
from attrs import frozen
from markupsafe import Markup
from numpy.typing import NDArray

from nest.instance.pairs import Pairs
from nest.units import format_decimal
from nest_page.cluster import Place
from nest_page.records import Cell, Key, Table
from nest_page.svg import boxes, element, fits, joined, text

MOST_MAPPED = 64
"""Devices of a map: of more, a phone shows no pair as a square of its own."""

CLASSES = 5
"""Shades of a map, `busy-1` to `busy-5`."""

MOST_SQUARE = 16.0
"""Side of a pair's square, px."""

ABOVE = 14.0
"""Room above the map for the numbers of device groups, px."""


@frozen(eq=False)
class PairMap:
    """A drawn map of device pairs.

    Attributes:
        names: of the devices, along both sides: group after group, then those that are not used.
        groups: replica and stage of each device group, and its first device and the one after its last, as places
            along the sides.
        bandwidth: bytes per second between two devices, in this order.
        bounds: ascending bandwidths that part the shades.
    """

    names: tuple[str, ...]
    groups: tuple[tuple[Place, int, int], ...]
    bandwidth: NDArray[numpy.float64]
    bounds: tuple[float, ...]

    @property
    def shades(self) -> NDArray[numpy.int64]:
        """The shade of every pair, from 1; 0 on the diagonal."""
        shades = 1 + numpy.searchsorted(numpy.array(self.bounds), self.bandwidth, side="right")
        numpy.fill_diagonal(shades, 0)
        return shades


def pair_map(pairs: Pairs, served: Mapping[str, Place | None]) -> PairMap | None:
    """The map of measured pairs, `served` by a plan as it says; None: there are too many devices for one."""
    if pairs.size > MOST_MAPPED:
        return None
    members: dict[tuple[int, int], list[int]] = {}
    idle = []
    for index, name in enumerate(pairs.names):
        place = served.get(name)
        if place is None:
            idle.append(index)
        else:
            members.setdefault((place.replica, place.stage), []).append(index)
    order: list[int] = []
    groups = []
    for replica, stage in sorted(members):
        groups.append((Place(replica, stage), len(order), len(order) + len(members[replica, stage])))
        order += members[replica, stage]
    shown = pairs.reordered(numpy.array(order + idle, dtype=numpy.int64))
    return PairMap(shown.names, tuple(groups), shown.bandwidth, _bounds(shown.bandwidth))


def _bounds(bandwidth: NDArray[numpy.float64]) -> tuple[float, ...]:
    """Round bandwidths that part those measured into shades, each as many times the one before."""
    measured = bandwidth[~numpy.eye(len(bandwidth), dtype=bool)]
    low, high = float(measured.min()), float(measured.max())
    if low == high:
        return ()
    bounds = (low * (high / low) ** (each / CLASSES) for each in range(1, CLASSES))
    return tuple(dict.fromkeys(_rounded(bound) for bound in bounds))


def _rounded(value: float) -> float:
    """A positive number with two digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return round(value / unit) * unit


def map_size(drawn: PairMap, room: float) -> tuple[float, float, float]:
    """Side of a square, width and height of the drawing, px."""
    side = min(MOST_SQUARE, (room - 2) / len(drawn.names))
    return side, len(drawn.names) * side + 2, len(drawn.names) * side + ABOVE + 2


def map_body(drawn: PairMap, room: float) -> Markup:
    """The elements of the map: squares shade by shade, the outlines of the device groups, and their numbers above."""
    side, _, _ = map_size(drawn, room)
    shades = drawn.shades
    parts = [
        element("path", class_=f"busy-{shade}", d=boxes(_runs(shades == shade, side)))
        for shade in range(1, len(drawn.bounds) + 2)
    ]
    squares = []
    for _, first, after in drawn.groups:
        squares.append((1 + first * side, ABOVE + 1 + first * side, (after - first) * side, (after - first) * side))
    parts.append(element("path", class_="line strong", d=boxes(squares)))
    several = any(place.replica for place, _, _ in drawn.groups)
    labels = []
    for place, first, after in drawn.groups:
        label = f"{place.replica + 1}.{place.stage + 1}" if several else str(place.stage + 1)
        if fits(label, (after - first) * side - 2, 10):
            labels.append(text(1 + (first + after) / 2 * side, ABOVE - 4, label, anchor="middle"))
    return joined([*parts, element("g", joined(labels), class_="tick small")])


def _runs(mask: NDArray[numpy.bool_], side: float) -> Iterator[tuple[float, float, float, float]]:
    """Rectangles of the squares of a mask: neighbours in a row are one."""
    for row, line in enumerate(mask):
        edges = numpy.flatnonzero(numpy.diff(numpy.concatenate([[False], line, [False]])))
        for first, after in edges.reshape(-1, 2).tolist():
            yield 1 + first * side, ABOVE + 1 + row * side, (after - first) * side, side


def map_keys(drawn: PairMap) -> tuple[Key, ...]:
    """Legend of the shades."""
    if not drawn.bounds:
        return ()
    bounds = [format_decimal(bound, "B/s") for bound in drawn.bounds]
    words = (f"below {bounds[0]}", *map("{} to {}".format, bounds, bounds[1:]), f"{bounds[-1]} and more")
    return tuple(Key(label, f"busy-{index + 1}") for index, label in enumerate(words))


def group_table(drawn: PairMap) -> Table:
    """For each device group, its slowest pair, and the slowest pair with the group of the next stage."""
    at = {(place.replica, place.stage): slice(first, after) for place, first, after in drawn.groups}
    rows = []
    for (replica, stage), own in at.items():
        after = at.get((replica, stage + 1))
        inside = _slowest(drawn, own, own)
        rows.append(
            (
                Cell(f"stage {stage + 1} of replica {replica + 1}"),
                *inside,
                *(_slowest(drawn, own, after) if after is not None else (Cell("–"), Cell("–"))),
            )
        )
    header = ("device group", "slowest inside", "between", "slowest to the next stage", "between")
    return Table("Bandwidth in and between device groups", header, tuple(rows), (0, 2, 4))


def _slowest(drawn: PairMap, one: slice, two: slice) -> Sequence[Cell]:
    """The lowest bandwidth between devices of two groups, and between which; of one device alone, none."""
    part = drawn.bandwidth[one, two]
    if part.size == 1 and one == two:
        return Cell("–"), Cell("–")
    row, column = numpy.unravel_index(int(part.argmin()), part.shape)
    names = drawn.names[one][int(row)], drawn.names[two][int(column)]
    return Cell(format_decimal(float(part.min()), "B/s"), float(part.min())), Cell(" – ".join(names))
