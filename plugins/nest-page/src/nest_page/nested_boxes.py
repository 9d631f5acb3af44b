"""A cluster as boxes in boxes, level by level, and the place of each cell in the picture."""

import math
from collections.abc import Sequence
from functools import cached_property

from attrs import frozen

PAD, GAP, LABEL = 5.0, 6.0, 14.0
"""Inside a box, between boxes, and above the children of a box for its name, px."""


HIGHER = 1.4
"""Times the least height that the outermost box may have, so that its last row is full."""


@frozen(slots=False)
class Layout:
    """Geometry of a drawn cluster.

    Attributes:
        fanouts: children per group, innermost first; cells are the children of the innermost groups.
        cell: side of a cell, px.
        between: from one cell to the next, px.
        width: that the outermost box may take, px.
    """

    fanouts: tuple[int, ...]
    cell: float
    between: float
    width: float

    @cached_property
    def columns(self) -> tuple[int, ...]:
        """For each level, children side by side."""
        return tuple(columns for columns, _, _ in self._levels)

    def size(self, level: int) -> tuple[float, float]:
        """Width and height of a group's box, px; level -1 is a cell."""
        return (self.cell, self.cell) if level < 0 else self._levels[level][1:]

    @cached_property
    def _levels(self) -> tuple[tuple[int, float, float], ...]:
        """For each level, columns, width and height."""
        boxes: list[tuple[int, float, float]] = []
        for level, fanout in enumerate(self.fanouts[:-1]):
            shapes = self._shapes(level, boxes[-1][1:] if boxes else (self.cell, self.cell))
            if level < len(self.fanouts) - 2:
                boxes.append(min(shapes, key=lambda shape: _unlike(shape, fanout)))
                continue
            # Of the boxes below the outermost one, those are best that fill it.
            whole = {shape: self._outermost(shape[1:]) for shape in shapes}
            boxes.append(
                min(
                    shapes,
                    key=lambda shape: (
                        _unlike(shape, fanout)[0],
                        _holes(whole[shape], self.fanouts[-1]),
                        *_unlike(shape, fanout)[1:],
                    ),
                )
            )
        return (*boxes, self._outermost(boxes[-1][1:] if boxes else (self.cell, self.cell)))

    def _shapes(self, level: int, child: tuple[float, float]) -> list[tuple[int, float, float]]:
        """Columns, width and height that a group of a level may have."""
        around = 2 * PAD * (len(self.fanouts) - 1 - level)
        fanout = self.fanouts[level]
        shapes = [_box(columns, fanout, child, self._gap(level)) for columns in range(1, fanout + 1)]
        return [shape for shape in shapes if shape[1] <= self.width - around] or shapes[:1]

    def _outermost(self, child: tuple[float, float]) -> tuple[int, float, float]:
        """The shape of the outermost box: the widest of those without a hole, unless it is far higher than need be."""
        shapes, fanout = self._shapes(len(self.fanouts) - 1, child), self.fanouts[-1]
        widest = max(shapes)
        full = max(shape for shape in shapes if fanout % shape[0] == 0)
        return full if full[2] <= HIGHER * widest[2] else widest

    def _gap(self, level: int) -> float:
        return self.between if level == 0 else GAP

    def origin(self, level: int, index: int) -> tuple[float, float]:
        """Left and top of group `index` of a level, counted over the whole cluster; level -1: of a cell."""
        left = top = 0.0
        for above in range(len(self.fanouts) - 1, level, -1):
            below = math.prod(self.fanouts[level + 1 : above])
            place = index // below % self.fanouts[above]
            row, column = divmod(place, self.columns[above])
            width, height = self.size(above - 1)
            left += PAD + column * (width + self._gap(above))
            top += PAD + LABEL + row * (height + self._gap(above))
        return left, top

    def groups(self, level: int) -> int:
        """Number of groups of a level."""
        return math.prod(self.fanouts[level + 1 :])


def _box(columns: int, children: int, child: tuple[float, float], gap: float) -> tuple[int, float, float]:
    rows = -(-children // columns)
    width = 2 * PAD + columns * child[0] + (columns - 1) * gap
    height = 2 * PAD + LABEL + rows * child[1] + (rows - 1) * gap
    return columns, width, height


def _holes(shape: tuple[int, float, float], children: int) -> int:
    """Free places in the last row of a box."""
    return -children % shape[0]


def _unlike(shape: tuple[int, float, float], children: int) -> tuple[bool, float, int]:
    """Distance of a box from a full grid half as high as wide."""
    columns, width, height = shape
    return children % columns != 0, abs(math.log(width / height / 2)), columns


def gathered(places: Sequence[object], capacities: Sequence[int], most: int) -> int:
    """Devices to draw as one cell: 1, or the fewest neighbours of one place that make at most `most` cells.

    Where no such number of neighbours is alike throughout, it is the greatest that is.

    Args:
        places: of each device.
        capacities: devices per group of each level, innermost first.
        most: cells.
    """
    count = 1
    inside = [each for each in range(2, capacities[0] + 1) if capacities[0] % each == 0]
    for many in (*inside, *capacities[1:]):
        if len(places) // count <= most:
            break
        if many % count == 0 and all(
            places[device] == places[device - device % many] for device in range(0, len(places), count)
        ):
            count = many
    return count


def fanouts_of_cells(capacities: Sequence[int], many: int, most: int) -> tuple[int, ...]:
    """Children per group, innermost first, where `many` devices are a cell; outer levels beyond `most` cells are cut.

    Levels of one child say nothing and are left out, but for the last.
    """
    cells = [capacity // many for capacity in capacities if capacity > many] or [1]
    counts = [count for count in cells if count <= most] or cells[:1]
    fanouts = [count // below for count, below in zip(counts, (1, *counts), strict=False)]
    return tuple(fanout for fanout in fanouts if fanout > 1) or (1,)
