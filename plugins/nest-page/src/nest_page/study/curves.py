"""Curves: a figure of plans over a number that varies, a line for each value of another key, a panel for each model."""

import math
from collections.abc import Iterator, Sequence

from markupsafe import Markup

from nest_page.palette import SERIES
from nest_page.records import Cell, Drawing, Figure, Key, Table
from nest_page.study.views import View
from nest_page.svg import (
    FORMS,
    WIDTHS,
    Scale,
    element,
    fitted,
    joined,
    left_axis,
    mark,
    number,
    shortened,
    text,
    ticks,
    whiskers,
)
from nest_studies.sweep.rows import StudyPoint

PANEL = 360
"""Width of a panel with its space, px, about: as many stand side by side as there is room for."""

LEFT, RIGHT, TOP, BOTTOM, HEIGHT = 58.0, 18.0, 40.0, 200.0, 244.0
"""Margins in a panel, px: both sides, first and last line; and the height of a panel."""

MOST_MARKS = 48
"""Values from left to right up to which each has a mark."""

LIKELY = " Thin bars are 80 % likely ranges of the step time. Rows whose bars overlap may change places when measured."
"""Sentence on prediction errors, after another."""

BESIDE = 3.0
"""Distance of the bars of neighbouring lines, px."""

WIDE = 8.0
"""Times the least value that the greatest is from which an axis is logarithmic."""


def curve_figure(view: View) -> Figure:
    """The curves of a view."""
    axis, other, metric = view.across_axis, view.other_axis, view.metric
    title = f"{metric.heading} over {axis.name}"
    lines = "" if other is None else f", a line for each {other.name}"
    panels = "" if view.facet is None else f", a panel for each {view.study.axes[view.facet].name}"
    better = "Less" if metric.less_is_better else "More"
    none = any(point is not None and metric.value(point) is None for point in _points(view))
    caption = (
        f"The {metric.title} of the best plan over {axis.name}{lines}{panels}. "
        f"{better} is better. Every mark leads to its row."
        + (" A cross below stands where there is no plan." if none else "")
        + (LIKELY if any(point is not None and metric.between(point) for point in _points(view)) else "")
        + (" The dashed line is the baseline." if any(_baseline(view, panel) for _, panel in view.panels) else "")
        + (" Axes fit the data: most do not begin at 0." if view.values(view.panels[0][1]) else "")
        + view.note
    )
    keys = tuple(
        Key(f"{other.name} {other.values[row]}", f"fill-{_hue(place)}", _form(place))
        for place, row in enumerate(view.rows)
        if other is not None
    )
    tables = [_table(view, name, panel) for name, panel in view.panels]
    drawings = tuple((_drawing(view, width, title),) for width in WIDTHS)
    return Figure(f"curve-{view.across}", title, caption, drawings, tables[0], keys, tuple(tables[1:]))


def _points(view: View) -> Iterator[StudyPoint | None]:
    for _, panel in view.panels:
        for column in view.columns:
            yield from (view.point(panel, column, row) for row in view.rows)


def _hue(place: int) -> str:
    return SERIES[place % len(SERIES)]


def _form(place: int) -> str:
    return FORMS[place % len(FORMS)]


def _drawing(view: View, width: float, title: str) -> Drawing:
    columns = max(1, min(round(width / PANEL), len(view.panels)))
    panel_width, rows = width / columns, -(-len(view.panels) // columns)
    body: list[Markup] = []
    for index, (name, panel) in enumerate(view.panels):
        left, top = index % columns * panel_width, index // columns * HEIGHT
        body += _panel(view, name, panel, (left, left + panel_width), top)
    described = f"{len(view.panels)} panels. " + " ".join(_described(view, name, panel) for name, panel in view.panels)
    return Drawing(width, rows * HEIGHT, joined(body), title, described, linked=True)


def _described(view: View, name: str, panel: int | None) -> str:
    values = view.values(panel)
    if not values:
        return f"{name}: no plan."
    return f"{name}: {view.metric.text(min(values))} to {view.metric.text(max(values))}."


def _panel(view: View, name: str, panel: int | None, between: tuple[float, float], top: float) -> list[Markup]:
    """One panel: its name, its axes, and its lines from the back to the front."""
    left, right = between[0] + LEFT, between[1] - RIGHT
    values = view.values(panel)
    size, _ = view.metric.unit_of(values)
    shown = [view.point(panel, column, row) for column in view.columns for row in view.rows]
    ends = [end for point in shown if point is not None for end in view.metric.between(point) or ()]
    base = _baseline(view, panel)
    up = fitted([*values, *ends, *([] if base is None else [base])], top + BOTTOM, top + TOP)
    measured = view.metric.with_unit(values)
    along = _Along(view, left + 8, right - 8)
    body = [
        text(between[0] + 4, top + 14, shortened(name or measured, between[1] - between[0] - 8), "strong"),
        *([text(between[0] + 4, top + 30, measured, "tick")] if name else []),
        left_axis(up, ticks(up.low, up.high, 6), lambda value: f"{value / size:.4g}", left, right),
        *_bottom(view, along, top + BOTTOM),
    ]
    if base is not None:
        body.append(element("path", d=f"M{number(left)} {number(up(base))}H{number(right)}", class_="line dashed"))
    marked = len(view.columns) <= MOST_MARKS
    for place, row in reversed(tuple(enumerate(view.rows))):
        points = [(column, view.point(panel, column, row)) for column in view.columns]
        body += _line(view, points, along, up, place, marked)
    return body


def _baseline(view: View, panel: int | None) -> float | None:
    """The figure that all rows of a panel are compared with; None: there are several, or none is known."""
    points = (view.point(panel, column, row) for column in view.columns for row in view.rows)
    known = view.study.baselines
    bases = {known[point.number].number: known[point.number] for point in points if point and point.number in known}
    return view.metric.value(bases.popitem()[1]) if len(bases) == 1 else None


class _Along:
    """From the values of a number to the coordinates of a horizontal axis, logarithmic where they span much."""

    def __init__(self, view: View, start: float, end: float) -> None:
        numbers = view.across_axis.numbers
        assert numbers is not None
        self._logarithmic = numbers[0] > 0 and numbers[-1] / numbers[0] >= WIDE
        self._numbers = tuple(map(math.log2, numbers)) if self._logarithmic else numbers
        self._scale = Scale(self._numbers[0], self._numbers[-1], start, end)

    def __call__(self, column: int) -> float:
        return self._scale(self._numbers[column])


def _bottom(view: View, along: _Along, bottom: float) -> Iterator[Markup]:
    """Labels below a panel, as far as there is room, and the key."""
    reached, edge = -math.inf, along(view.columns[-1]) + 8 + RIGHT
    for column in view.columns:
        label = view.across_axis.values[column]
        half = len(label) * 3.4
        x = min(along(column), edge - half)
        if x - half > reached + 6:
            yield text(x, bottom + 16, label, "tick", "middle")
            reached = x + half
    yield text(along(view.columns[-1]), bottom + 32, shortened(view.across_axis.name, 280), "tick", "end")


def _line(
    view: View, points: Sequence[tuple[int, StudyPoint | None]], along: _Along, up: Scale, place: int, marked: bool
) -> list[Markup]:
    """A line through the points of a row of the view, with their marks; it breaks where there is no plan."""
    path, move, marks = "", "M", []
    for column, point in points:
        value = None if point is None else view.metric.value(point)
        if point is None or value is None:
            move = "M"
            if point is not None and marked:
                marks.append(linked(point, mark("cross", along(column), up.start - 7, "cross"), "no plan"))
            continue
        path += f"{move}{number(along(column))} {number(up(value))}"
        move = "L"
        if marked:
            drawn = mark(_form(place), along(column), up(value), f"fill-{_hue(place)}")
            marks.append(linked(point, drawn, view.study.said(view.metric, point)))
    aside = BESIDE * (place - (len(view.rows) - 1) / 2)
    ranges = ((along(column) + aside, view.metric.between(point)) for column, point in points if point is not None)
    bars = whiskers(ranges, up, f"line-{_hue(place)}")
    return [bars, element("path", d=path or "M0 0", class_=f"series line-{_hue(place)}"), *marks]


def linked(point: StudyPoint, drawn: Markup, said: str) -> Markup:
    """A mark that leads to its row; the table leads there for who uses a keyboard."""
    title = element("title", f"row {point.number}: {said}")
    return element("a", title + drawn, href=f"#{point.anchor}", tabindex="-1")


def _table(view: View, name: str, panel: int | None) -> Table:
    """The numbers of a panel."""
    other = view.other_axis
    header = (view.across_axis.name, *(_heading(view, row) for row in view.rows))
    rows = tuple(
        (Cell(view.across_axis.values[column]), *(cell_of(view, view.point(panel, column, row)) for row in view.rows))
        for column in view.columns
    )
    of = f" of {name}" if name else ""
    by = "" if other is None else f", by {other.name}"
    return Table(f"{view.metric.heading}{of} over {view.across_axis.name}{by}", header, rows)


def _heading(view: View, row: int) -> str:
    return view.metric.title if view.other_axis is None else view.other_axis.values[row]


def cell_of(view: View, point: StudyPoint | None) -> Cell:
    """The metric of a row, which leads to it."""
    if point is None:
        return Cell("")
    value = view.metric.value(point)
    if value is None:
        return Cell("no plan" if point.batch_time is None else "unknown", link=f"#{point.anchor}")
    return Cell(view.metric.text(value), value, f"#{point.anchor}")
