"""The tasks of the parts of a batch that are shown, stage by stage, and the whole batch in a strip above them."""

from collections.abc import Sequence
from itertools import groupby, pairwise

import numpy
from attrs import frozen
from markupsafe import Markup

from nest.tolerances import DRAWN
from nest.units import format_seconds, percent
from nest_page.records import Drawing, Key
from nest_page.svg import NARROW, WIDTH, Scale, boxes, element, fits, joined, number, text, time_axis
from nest_page.task_table import NUMBERED, PASSES, STYLES, Busy, TaskTable, groups

MOST_ROWS = 32
"""Stages drawn at most."""

PARTS = 120
"""Equal parts of the batch that have a colour of their own in the strip."""

SHADES = 5
"""Shades of a colour; each stands for an equal range of shares."""

STRIP_TOP = 8
LEAST_BRACKET = 2.0
"""Width at which a window that is shown can be seen, px."""

LEFT, BEHIND, GUTTER = 72.0, 84.0, 34.0
"""Room for stages' names, for figures of the whole batch behind each row, and between two windows, px."""

TOP = 24
"""Top of rows, px: above are the names of omitted parts."""

ROOMY, DENSE = 26, 13
"""Height of a row with its space where there are few stages, and where there are many, px."""

THIN = 250
"""Tasks in a row above which they are thin."""

LEAST_APART = 140.0
"""Distance of the middles of two breaks, px, so that the words above them do not touch."""

FOOT = 0.2
"""Height of the foot of a box of a stage's last chunk, as a share of the box."""

NUMBER_SIZE = 9.5
"""Of micro-batches in their boxes, px."""


Window = tuple[float, float]
"""From and to, in seconds from the beginning of the batch."""


@frozen
class Windows:
    """Stages and intervals of a timeline.

    Attributes:
        stages: drawn, from 0, in order.
        windows: in order, apart from each other.
        cut: whether windows were made shorter than warm-up, two steady periods and drain.
    """

    stages: tuple[int, ...]
    windows: tuple[Window, ...]
    cut: bool = False

    @property
    def gaps(self) -> tuple[Window, ...]:
        """Intervals left out between windows."""
        return tuple((before[1], after[0]) for before, after in pairwise(self.windows))


@frozen
class Room:
    """Position of rows in a drawing over time; a narrow one has shorter names and figures.

    Attributes:
        width: of the drawing, px.
        left: end of stages' names and start of time, px.
        right: end of time, px; figures of the whole batch follow.
        gutter: between two windows, px.
    """

    width: float
    left: float
    right: float
    gutter: float

    def stage(self, stage: int) -> str:
        """Label of a stage, counted from 0."""
        return str(stage + 1) if self.width < NARROW else f"stage {stage + 1}"


def room(width: float = WIDTH) -> Room:
    """The room of a drawing so wide."""
    if width < NARROW:
        return Room(width, 30.0, width - 64.0, 18.0)
    return Room(width, LEFT, width - BEHIND, GUTTER)


@frozen
class Placing:
    """Positions in the drawing.

    Attributes:
        room: around the rows.
        scales: of the windows, from seconds to px.
        row: px; of a row with the space below it.
        height: px; of the whole drawing.
    """

    room: Room
    scales: tuple[Scale, ...]
    row: float
    height: float

    @property
    def bar(self) -> float:
        """Height of a task, px."""
        return self.row - 3

    @property
    def bottom(self) -> float:
        """End of rows, px."""
        return self.height - 30

    def top(self, row: int) -> float:
        """Start of a row, px."""
        return TOP + row * self.row


def placing(windows: Windows, around: Room | None = None, longest: float | None = None) -> Placing:
    """Positions; `longest` are the seconds that would fill the room, None: all that is shown."""
    around = around or room()
    row = min(ROOMY, max(DENSE, 320 // len(windows.stages)))
    scales = window_scales(windows, around, longest)
    return Placing(around, scales, row, TOP + row * len(windows.stages) + 30)


def window_scales(windows: Windows, around: Room, longest: float | None = None) -> tuple[Scale, ...]:
    """All windows at the same scale, one after the other; arguments are those of `placing`."""
    total = sum(end - start for start, end in windows.windows) if longest is None else longest
    free = around.right - around.left - around.gutter * (len(windows.windows) - 1)
    scales, x = [], around.left
    for start, end in windows.windows:
        width = (end - start) / total * free if total else free
        scales.append(Scale(start, end, x, x + width))
        x += width + around.gutter
    return tuple(scales)


def drawn(table: TaskTable, windows: Windows, place: Placing, idle: Sequence[float], before: str = "") -> Markup:
    """The elements of the drawing.

    `idle` is the share of the batch in which each stage waits; `before` says how long ago the window before ended.
    """
    longest = windows.windows[-1][1]
    end, around = place.bottom, place.room
    waits = "" if around.width < NARROW else " idle"
    background = element(
        "path",
        d=boxes(
            (scale.start, place.top(row), scale.end - scale.start, place.bar)
            for scale in place.scales
            for row in range(len(windows.stages))
        ),
        class_="idle",
    )
    return joined(
        [
            time_axis(place.scales, longest, TOP - 4, end),
            background,
            *_tasks(table, windows, place),
            *_feet(table, windows, place),
            *_numbers(table, windows, place),
            *(
                text(around.left - 8, place.top(row) + place.bar / 2 + 4, around.stage(stage), "tick", "end")
                for row, stage in enumerate(windows.stages)
            ),
            *(
                text(around.right + 8, place.top(row) + place.bar / 2 + 4, f"{percent(idle[stage])}{waits}", "tick")
                for row, stage in enumerate(windows.stages)
            ),
            *breaks(place.scales, around.gutter, TOP, end),
            *_left_out(windows, place),
            *([text(around.left, TOP - 10, before, "tick")] if before else []),
        ]
    )


@frozen
class Box:
    """A drawn task by its row in the table: row of the drawing, from 0, left and right, px, to a tenth."""

    task: int
    row: int
    left: float
    right: float


def task_boxes(table: TaskTable, windows: Windows, place: Placing) -> tuple[Box, ...]:
    """A box for every task that runs in a window on a stage that is shown, as far as it does."""
    rows = {stage: row for row, stage in enumerate(windows.stages)}
    here = numpy.isin(table.stage, windows.stages)
    result = []
    for scale in place.scales:
        for task in numpy.flatnonzero(here & table.within(scale.low, scale.high)).tolist():
            left = round(scale(max(float(table.start[task]), scale.low)), 1)
            right = round(scale(min(float(table.end[task]), scale.high)), 1)
            # What rounds to nothing is drawn as thinly as coordinates allow.
            result.append(Box(task, rows[int(table.stage[task])], left, max(right, round(left + 0.1, 1))))
    return tuple(result)


def _tasks(table: TaskTable, windows: Windows, place: Placing) -> list[Markup]:
    """A path for every style: a tenth of the bytes of an element for every task."""
    paths: dict[int, list[tuple[float, float, float, float]]] = {}
    drawn = task_boxes(table, windows, place)
    # Between thin boxes, a line as thick as between others would take their colour.
    apart = "thin" if len(drawn) > THIN * len(windows.stages) else "parted"
    for box in drawn:
        size = (box.left, place.top(box.row), box.right - box.left, place.bar)
        paths.setdefault(int(table.style[box.task]), []).append(size)
    return [
        element("path", d=boxes(sizes), class_=f"task-{STYLES[style][0]} {apart}")
        for style, sizes in sorted(paths.items())
    ]


def _feet(table: TaskTable, windows: Windows, place: Placing) -> list[Markup]:
    """Dark feet of the boxes of passes, the higher the later the chunk; those of the first have none."""
    sizes = []
    for box in task_boxes(table, windows, place) if table.parts > 1 else ():
        share = int(table.part[box.task]) / (table.parts - 1)
        if share and int(table.style[box.task]) in PASSES:
            height = round(place.bar * FOOT * share, 1)
            sizes.append((box.left, place.top(box.row) + place.bar - height, box.right - box.left, height))
    return [element("path", d=boxes(sizes), class_="foot")] if sizes else []


def _numbers(table: TaskTable, windows: Windows, place: Placing) -> list[Markup]:
    """Micro-batches, counted from 1 like stages, where they fit; a text for every row."""
    if place.bar < NUMBER_SIZE:
        return []
    rows: dict[int, list[Markup]] = {}
    for box in task_boxes(table, windows, place):
        digits = str(int(table.micro_batch[box.task]) + 1)
        if int(table.style[box.task]) in NUMBERED and fits(digits, box.right - box.left - 2, NUMBER_SIZE):
            rows.setdefault(box.row, []).append(
                Markup(f'<tspan x="{number((box.left + box.right) / 2)}">{digits}</tspan>')
            )
    return [
        element("text", Markup("").join(parts), y=place.top(row) + place.bar / 2 + 3.4, class_="batch")
        for row, parts in sorted(rows.items())
    ]


def breaks(scales: Sequence[Scale], gutter: float, top: float, bottom: float) -> list[Markup]:
    """Two zigzag lines where something is left out between two windows."""
    steps = max(2, round((bottom - top) / 16))
    zigzag = "".join(f"l{3 if step % 2 else -3} {number((bottom - top + 8) / steps)}" for step in range(steps))
    return [
        element(
            "path",
            d="".join(f"M{number(before.end + gutter / 2 + shift)} {number(top - 4)}{zigzag}" for shift in (-2.5, 5.5)),
            class_="break",
        )
        for before in scales[:-1]
    ]


def _left_out(windows: Windows, place: Placing) -> list[Markup]:
    """Time left out between two windows; in short, where the words would touch."""
    lines = [
        (scale.end + place.room.gutter / 2, format_seconds(end - start))
        for (start, end), scale in zip(windows.gaps, place.scales[:-1], strict=True)
    ]
    near = any(later - x < LEAST_APART for (x, _), (later, _) in pairwise(lines))
    return [text(x, TOP - 10, time if near else f"{time} left out", "tick", "middle") for x, time in lines]


PATTERNED = {
    "backward": ("dot", "M1 1h1.2v1.2h-1.2zM4 4h1.2v1.2h-1.2z"),
    "inputs": ("dot", "M1 1h1.2v1.2h-1.2zM4 4h1.2v1.2h-1.2z"),
    "weights": ("line", "M1.5 0V6M4.5 0V6"),
    "recompute": ("line", "M-1 7L7 -1M-1 1L1 -1M5 7L7 5"),
    "message": ("line", "M0 1.5H6M0 4.5H6"),
    "collective": ("line", "M-1 7L7 -1M-1 -1L7 7"),
    "update": ("dot", "M1.5 1.5h3v3h-3z"),
    "wait": ("line", "M0 3H6"),
}
"""Patterns of styles, of 6 by 6 px, laid over their colour."""


def patterns() -> Markup:
    """Patterns that `charts.css` fills tasks with; colour alone tells no style from another."""
    definitions = []
    for name, (kind, path) in PATTERNED.items():
        ground = element("rect", width=6, height=6, class_=f"ground-{name}")
        inner = ground + element("path", d=path, class_=f"texture-{kind}")
        definitions.append(
            element("pattern", inner, id=f"task-{name}", width=6, height=6, patternUnits="userSpaceOnUse")
        )
    return element("defs", Markup("").join(definitions))


def strip_keys() -> tuple[Key, ...]:
    """Legend of the shades."""
    return tuple(
        Key(f"{'strip: busy ' if shade == 0 else ''}up to {100 * (shade + 1) // SHADES}%", f"busy-{shade + 1}")
        for shade in range(SHADES)
    )


def strip(busy: Busy, windows: Windows, width: float = WIDTH) -> Drawing:
    """The drawing: what stages do in `PARTS` parts of the batch, above what is shown of it."""
    around = room(width)
    rows = groups(busy.seconds.shape[0], MOST_ROWS)
    row = min(12.0, max(4.0, 112.0 / len(rows)))
    bottom, end = STRIP_TOP + row * len(rows), float(busy.edges[-1])
    scale = Scale(0.0, end, around.left, around.right)
    # A share of exactly 1 belongs to the last shade, and what rounding leaves of 0 to none.
    shades = numpy.minimum(numpy.ceil(busy.shares(rows) * SHADES - DRAWN), SHADES).astype(int)
    paths: dict[int, list[tuple[float, float, float, float]]] = {}
    for index, line in enumerate(shades.tolist()):
        for shade, first, last in _runs(line):
            left, right = (round(scale(float(busy.edges[edge])), 1) for edge in (first, last))
            paths.setdefault(shade, []).append((left, STRIP_TOP + index * row, right - left, row))
    body = [
        element(
            "rect", x=scale.start, y=STRIP_TOP, width=scale.end - scale.start, height=bottom - STRIP_TOP, class_="idle"
        ),
        *(element("path", d=boxes(places), class_=f"busy-{shade}") for shade, places in sorted(paths.items())),
        *_names(rows, row, around),
        _brackets(windows, scale, bottom),
        time_axis((scale,), end, bottom + 9, bottom + 12),
    ]
    share = busy.seconds.sum() / (end * busy.seconds.shape[0]) if end else 0.0
    row_of = "stage" if len(rows) == busy.seconds.shape[0] else "group of neighbouring stages"
    description = (
        f"A strip from the beginning to the end of the batch, with a row for every {row_of}; the darker, the busier. "
        f"Stages are busy for {percent(share)} of it. Marks below it show which parts are drawn in detail."
    )
    return Drawing(width, bottom + 34, joined(body), "The whole batch", description)


def _runs(line: list[int]) -> list[tuple[int, int, int]]:
    """Neighbours of one shade: the shade, the first, and the one after the last; shade 0 is not drawn."""
    runs, first = [], 0
    for shade, run in groupby(line):
        last = first + len(list(run))
        runs += [(shade, first, last)] if shade else []
        first = last
    return runs


def _names(rows: tuple[tuple[int, int], ...], row: float, around: Room) -> list[Markup]:
    """Of the first and the last row, and of those between that have room."""
    step = max(1, round(12 / row))
    named = [index for index in range(0, len(rows), step) if index == 0 or index + step <= len(rows) - 1]
    if len(rows) > 1:
        named.append(len(rows) - 1)
    names = [around.stage(first) if last - first == 1 else f"{first + 1}-{last}" for first, last in rows]
    tops = {index: STRIP_TOP + index * row + row / 2 + 4 for index in named}
    return [text(around.left - 8, top, names[index], "tick small", "end") for index, top in tops.items()]


def _brackets(windows: Windows, scale: Scale, bottom: float) -> Markup:
    """Bars under the strip that mark the intervals drawn below."""
    places = []
    for start, end in windows.windows:
        left, right = scale(start), scale(end)
        more = max(LEAST_BRACKET - (right - left), 0.0) / 2
        places.append((left - more, bottom + 3, right - left + 2 * more, 4.0))
    return element("path", d=boxes(places), class_="bracket")
