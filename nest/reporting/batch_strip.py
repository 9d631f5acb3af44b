"""The whole batch in a strip: how busy stages are from its beginning to its end, and which parts are shown below."""

import numpy
from markupsafe import Markup

from nest.reporting.axes import Scale
from nest.reporting.busy import Busy, groups
from nest.reporting.records import Drawing, Key
from nest.reporting.svg import WIDTH, boxes, element, joined, text
from nest.reporting.time_axis import time_axis
from nest.reporting.timeline_drawing import Room, room
from nest.reporting.windows import MOST_ROWS, Shown
from nest.tolerances import DRAWN

PARTS = 120
"""Equal parts of the batch that have a colour of their own."""

SHADES = 5
"""Shades of a colour; each stands for an equal range of shares."""

TOP = 8
LEAST_BRACKET = 2.0
"""Width at which a window that is shown can be seen, px."""


def keys() -> tuple[Key, ...]:
    """What shades mean."""
    return tuple(
        Key(f"{'strip: busy ' if shade == 0 else ''}up to {100 * (shade + 1) // SHADES}%", f"busy-{shade + 1}")
        for shade in range(SHADES)
    )


def strip(busy: Busy, shown: Shown, width: float = WIDTH) -> Drawing:
    """The drawing.

    Args:
        busy: what stages do in `PARTS` parts of the batch.
        shown: what is drawn below.
        width: px.
    """
    around = room(width)
    rows = groups(busy.seconds.shape[0], MOST_ROWS)
    row = min(12.0, max(4.0, 112.0 / len(rows)))
    bottom, end = TOP + row * len(rows), float(busy.edges[-1])
    scale = Scale(0.0, end, around.left, around.right)
    # A share of exactly 1 belongs to the last shade, and what rounding leaves of 0 to none.
    shades = numpy.minimum(numpy.ceil(busy.shares(rows) * SHADES - DRAWN), SHADES).astype(int)
    paths: dict[int, list[tuple[float, float, float, float]]] = {}
    for index, line in enumerate(shades.tolist()):
        for shade, first, last in _runs(line):
            left, right = (round(scale(float(busy.edges[edge])), 1) for edge in (first, last))
            paths.setdefault(shade, []).append((left, TOP + index * row, right - left, row))
    body = [
        element("rect", x=scale.start, y=TOP, width=scale.end - scale.start, height=bottom - TOP, class_="idle"),
        *(element("path", d=boxes(places), class_=f"busy-{shade}") for shade, places in sorted(paths.items())),
        *_names(rows, row, around),
        _brackets(shown, scale, bottom),
        time_axis((scale,), end, bottom + 9, bottom + 12),
    ]
    share = busy.seconds.sum() / (end * busy.seconds.shape[0]) if end else 0.0
    row_of = "stage" if len(rows) == busy.seconds.shape[0] else "group of neighbouring stages"
    told = (
        f"A strip from the beginning to the end of the batch, with a row for every {row_of}; the darker, the busier. "
        f"Stages are busy for {share:.1%} of it. Marks below it show which parts are drawn in detail."
    )
    return Drawing(width, bottom + 34, joined(body), "The whole batch", told)


def _runs(line: list[int]) -> list[tuple[int, int, int]]:
    """Neighbours of one shade: the shade, the first, and the one after the last; shade 0 is not drawn."""
    found: list[tuple[int, int, int]] = []
    for index, shade in enumerate(line):
        if found and found[-1][0] == shade:
            found[-1] = (shade, found[-1][1], index + 1)
        else:
            found.append((shade, index, index + 1))
    return [each for each in found if each[0]]


def _names(rows: tuple[tuple[int, int], ...], row: float, around: Room) -> list[Markup]:
    """Of the first and the last row, and of those between that have room."""
    apart = max(1, round(12 / row))
    told = [index for index in range(0, len(rows), apart) if index == 0 or index + apart <= len(rows) - 1]
    if len(rows) > 1:
        told.append(len(rows) - 1)
    names = [around.stage(first) if last - first == 1 else f"{first + 1}-{last}" for first, last in rows]
    return [text(around.left - 8, TOP + index * row + row / 2 + 4, names[index], "tick small", "end") for index in told]


def _brackets(shown: Shown, scale: Scale, bottom: float) -> Markup:
    """What is drawn below, as bars under the strip."""
    places = []
    for start, end in shown.windows:
        left, right = scale(start), scale(end)
        more = max(LEAST_BRACKET - (right - left), 0.0) / 2
        places.append((left - more, bottom + 3, right - left + 2 * more, 4.0))
    return element("path", d=boxes(places), class_="bracket")
