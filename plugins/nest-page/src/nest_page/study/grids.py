"""Grids over two keys: how good the best plans are (heat maps), and which plan they are (regions)."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from attrs import frozen
from markupsafe import Markup

from nest_page.palette import SERIES
from nest_page.records import Cell, Drawing, Figure, Key, Table
from nest_page.study.curves import cell_of, linked
from nest_page.study.views import View
from nest_page.svg import NARROW, WIDTHS, boxes, element, fits, joined, shortened, text
from nest_studies.sweep.rows import StudyPoint

ROW, ABOVE, BELOW, BEHIND = 24.0, 28.0, 44.0, 12.0
"""Height of a row of cells, room above and below them and behind, px."""

MOST_LABEL = 0.3
"""Share of a panel's width that names of rows take at most."""

LETTER = 6.7
"""Mean width of a letter, px."""

BOUNDS = (1.02, 1.1, 1.25, 1.5)
"""Times the best of a panel, up to which each shade goes; the last shade is beyond."""

SHADES = ("fill-blue", "heat-4", "heat-3", "heat-2", "heat-1")
"""Classes of these shades, the best first."""

LETTERS = "ABCDEFGHIJ"
"""Names of plans in regions, a hue each; all others have none."""

OTHER = ("heat-3", "·")
"""Class and letter of all other plans."""

Filled = Callable[[StudyPoint, int | None], tuple[str, str]]
"""The class and the words of a cell."""


def heat_figure(view: View) -> Figure:
    """A heat map for each panel of a view."""
    metric = view.metric
    bests = {panel: metric.best(values) for _, panel in view.panels if (values := view.values(panel))}

    def filled(point: StudyPoint, panel: int | None) -> tuple[str, str]:
        value = metric.value(point)
        if value is None:
            return "paper", ""
        times = metric.times_best(value, bests[panel])
        shade = sum(times > bound for bound in BOUNDS)
        size, _ = metric.unit_of(view.values(panel))
        return SHADES[shade], f"{value / size:.3g}"

    keys = tuple(
        Key(label, style)
        for label, style in zip(
            (
                f"the best of its panel, or at most {BOUNDS[0]} times that",
                *(f"{low} to {high} times" for low, high in pairwise(BOUNDS)),
                "worse",
            ),
            SHADES,
            strict=True,
        )
    )
    title = f"{metric.heading} over {_axes(view)}"
    caption = (
        f"The {metric.title} of the best plan, shaded by how it compares with the best of its panel; numbers are in "
        f"the unit behind a panel's name.{_framed(view)} Empty cells have no plan. Every cell leads to its row."
        + view.note
    )
    tables = [
        _table(view, f"{metric.heading}{_of(name)} over {_axes(view)}", panel, cell_of) for name, panel in view.panels
    ]
    units = {panel: metric.with_unit(view.values(panel)) for _, panel in view.panels}
    return _figure(f"heat-{_name(view)}", title, caption, view, _Style(filled, units, _winners(view)), keys, tables)


def region_figure(view: View) -> Figure:
    """Map of the winning plans, for each panel of a view."""
    points = [
        view.point(panel, column, row) for _, panel in view.panels for column in view.columns for row in view.rows
    ]
    counts = Counter(point.plan for point in points if point is not None and point.plan)
    letters = {plan: LETTERS[place] for place, (plan, _) in enumerate(counts.most_common(len(LETTERS)))}
    hues = {plan: f"fill-{SERIES[place]}" for place, plan in enumerate(letters)}

    def filled(point: StudyPoint, panel: int | None) -> tuple[str, str]:
        if not point.plan:
            return "paper", ""
        return (hues[point.plan], letters[point.plan]) if point.plan in letters else OTHER

    def cell(view: View, point: StudyPoint | None) -> Cell:
        if point is None:
            return Cell("")
        return Cell(letters.get(point.plan, point.plan) if point.plan else "no plan", link=f"#{point.anchor}")

    keys = tuple(Key(f"{letter}: {plan}", hues[plan]) for plan, letter in letters.items())
    others = len(counts) - len(letters)
    if others > 0:
        keys = (*keys, Key(f"{OTHER[1]}: other plans", OTHER[0]))
    title = f"Which plan wins over {_axes(view)}"
    caption = (
        "The best plan of each cell, but for how often it is replicated; letters are in the order of how many cells "
        f"each wins. {len(counts):,} plans win somewhere"
        + (f"; the {others:,} that win least often have a dot." if others > 0 else ".")
        + " Empty cells have no plan. Every cell leads to its row."
        + view.note
    )
    names = Table(
        f"Plans of the letters, over {_axes(view)}",
        ("letter", "plan", "cells"),
        tuple(
            (Cell(letter), Cell(plan), Cell(str(counts[plan]), float(counts[plan]))) for plan, letter in letters.items()
        ),
        words=(0, 1),
    )
    tables = [
        _table(view, f"Plan{_of(name)} that wins over {_axes(view)}", panel, cell, words=True)
        for name, panel in view.panels
    ]
    return _figure(
        f"regions-{_name(view)}", title, caption, view, _Style(filled, {}, frozenset()), keys, [names, *tables]
    )


def _name(view: View) -> str:
    return f"{view.across}" if view.other is None else f"{view.across}-{view.other}"


def _axes(view: View) -> str:
    return view.across_axis.name + ("" if view.other_axis is None else f" and {view.other_axis.name}")


def _of(name: str) -> str:
    return f" of {name}" if name else ""


def _framed(view: View) -> str:
    return f" The best {view.other_axis.name} of each column is framed." if _compares(view) and view.other_axis else ""


def _compares(view: View) -> bool:
    """Return whether rows are alternatives: one wins in each column."""
    return view.other_axis is not None and view.other_axis.numbers is None and not view.other_axis.is_work


def _winners(view: View) -> frozenset[int]:
    """Numbers of the rows of the study that are the best of their column."""
    if not _compares(view):
        return frozenset()
    winners = set()
    for _, panel in view.panels:
        for column in view.columns:
            cells = [point for row in view.rows if (point := view.point(panel, column, row)) is not None]
            valued = [(value, point) for point in cells if (value := view.metric.value(point)) is not None]
            if valued:
                best = view.metric.best([value for value, _ in valued])
                winners.add(next(point.number for value, point in valued if value == best))
    return frozenset(winners)


@frozen
class _Style:
    """Fill of cells, unit of each panel, and framed rows of the study."""

    filled: Filled
    units: Mapping[int | None, str]
    framed: frozenset[int]


def _figure(
    name: str, title: str, caption: str, view: View, style: _Style, keys: tuple[Key, ...], tables: Sequence[Table]
) -> Figure:
    drawings = tuple((_drawing(view, style, width, title),) for width in WIDTHS)
    return Figure(name, title, caption, drawings, tables[0], keys, tuple(tables[1:]))


def _drawing(view: View, style: _Style, width: float, title: str) -> Drawing:
    wide = len(view.columns) > 12
    most = 1 if width < NARROW else 2 if wide or width < WIDTHS[0] else 3
    columns = min(most, len(view.panels))
    panel_width = width / columns
    height = ABOVE + len(view.rows) * ROW + BELOW
    body: list[Markup] = []
    for index, (name, panel) in enumerate(view.panels):
        left, top = index % columns * panel_width, index // columns * height
        body += _panel(view, style, name, panel, (left, left + panel_width - BEHIND), top)
    rows = -(-len(view.panels) // columns)
    described = (
        f"{len(view.panels)} grids of {len(view.columns)} by {len(view.rows)} cells; the tables hold the same numbers."
    )
    return Drawing(width, rows * height, joined(body), title, described, linked=True)


def _panel(
    view: View, style: _Style, name: str, panel: int | None, between: tuple[float, float], top: float
) -> list[Markup]:
    """One grid, with its name and what its columns and rows are called."""
    axis, other = view.across_axis, view.other_axis
    names = [other.values[row] for row in view.rows] if other is not None else []
    room = min(max((len(each) for each in names), default=0) * LETTER + 10, MOST_LABEL * (between[1] - between[0]))
    left = between[0] + room
    side = (between[1] - left) / len(view.columns)
    first = top + ABOVE
    unit = style.units.get(panel, "")
    heading = ", ".join(filter(None, (name, unit)))
    body = [text(between[0], top + 16, shortened(heading, between[1] - between[0]), "strong")]
    frames = []
    for line, row in enumerate(view.rows):
        y = first + line * ROW
        if names:
            body.append(text(left - 6, y + 16, shortened(names[line], room - 8), "tick", "end"))
        for place, column in enumerate(view.columns):
            point = view.point(panel, column, row)
            if point is None:
                continue
            box = (left + place * side, y, side, ROW)
            body.append(_cell(point, style, panel, box, view.study.said(view.metric, point)))
            if point.number in style.framed:
                frames.append(box)
    if frames:
        body.append(element("path", d=boxes((x + 1, y + 1, w - 2, h - 2) for x, y, w, h in frames), class_="own"))
    below = first + len(view.rows) * ROW
    each = max(len(axis.values[column]) for column in view.columns) * LETTER + 6
    step = max(1, -int(-each // side))
    body += [
        text(left + (place + 0.5) * side, below + 16, axis.values[column], "tick", "middle")
        for place, column in enumerate(view.columns)
        if place % step == 0 and each <= step * side
    ]
    label = axis.name if other is None else f"{axis.name}; rows: {other.name}"
    body.append(text(between[1], below + 32, shortened(label, between[1] - between[0]), "tick", "end"))
    return body


def _cell(
    point: StudyPoint, style: _Style, panel: int | None, box: tuple[float, float, float, float], said: str
) -> Markup:
    """A cell that leads to its row, with what it says where there is room."""
    x, y, width, height = box
    fill, words = style.filled(point, panel)
    drawn = element("path", d=boxes([box]), class_=f"{fill} part")
    if words and fits(words, width - 4):
        drawn += text(x + width / 2, y + height / 2 + 4, words, "on" if fill.startswith("fill-") else "", "middle")
    return linked(point, drawn, ", ".join(filter(None, (said, point.plan))))


def _table(
    view: View, caption: str, panel: int | None, cell: Callable[[View, StudyPoint | None], Cell], *, words: bool = False
) -> Table:
    """The cells of a panel, columns from left to right as drawn."""
    other = view.other_axis
    header = (other.name if other is not None else "", *(view.across_axis.values[column] for column in view.columns))
    rows = tuple(
        (
            Cell(other.values[row] if other is not None else view.metric.title),
            *(cell(view, view.point(panel, column, row)) for column in view.columns),
        )
        for row in view.rows
    )
    return Table(caption, header, rows, words=tuple(range(len(header))) if words else (0,))
