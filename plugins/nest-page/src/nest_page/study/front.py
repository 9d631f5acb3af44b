"""The Pareto front of a study: rows that no other row of the same training beats in time, devices, memory and cost."""

from collections.abc import Sequence

import numpy
from markupsafe import Markup

from nest_page.records import Cell, Drawing, Figure, Key, Table
from nest_page.study.curves import LIKELY, linked
from nest_page.study.points import METRICS, Group, Study
from nest_page.svg import (
    WIDTHS,
    bottom_axis,
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

MOST_GROUPS = 12
"""Trainings that have a panel."""

MOST_DRAWN = 400
"""Beaten rows drawn in a panel, evenly chosen of more."""

PANEL, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 360.0, 244.0, 62.0, 18.0, 40.0, 200.0
"""Size of a panel, and of what is drawn in it, px."""


def pareto_optimal(points: Sequence[StudyPoint]) -> tuple[StudyPoint, ...]:
    """Those that no other equals or beats in step time, devices, memory and cost, and beats in one; in their order.

    A figure that nobody knows of any counts for all alike.
    """
    figures = numpy.array([_figures(point) for point in points])
    better = numpy.empty(len(points), dtype=bool)
    for index, own in enumerate(figures):
        better[index] = ((figures <= own).all(axis=1) & (figures < own).any(axis=1)).any()
    return tuple(point for point, beaten in zip(points, better, strict=True) if not beaten)


def _figures(point: StudyPoint) -> tuple[float, ...]:
    return tuple(
        float("inf") if value is None else value
        for value in (point.batch_time, point.devices, point.memory, point.cost)
    )


def front_figure(study: Study, groups: Sequence[Group]) -> Figure:
    """Step time over cost, or over devices where costs are not known: all rows, and those of the front."""
    costs = all(point.cost is not None for _, points in groups for point in points)
    fronts = {name: pareto_optimal(points) for name, points in groups[:MOST_GROUPS]}
    over = "cost to train" if costs else "devices"
    metric = METRICS["step-time"]
    likely = LIKELY if any(metric.between(point) for points in fronts.values() for point in points) else ""
    left_out = f" Of {len(groups):,} trainings, {MOST_GROUPS} are drawn." if len(groups) > MOST_GROUPS else ""
    caption = (
        f"Step time over {over} of every row with a plan. Filled are those that no other row of the same training "
        "equals or beats in step time, devices used, memory of a device" + (" and cost" if costs else "") + f".{likely}"
        f"{left_out} That is the front of the rows of this study; `nest.frontier` finds the front of one problem."
    )
    title = f"Pareto front: step time over {over}"
    shown = groups[:MOST_GROUPS]
    drawings = tuple((_drawing(study, shown, fronts, costs, width, title),) for width in WIDTHS)
    tables = [_table(study, name, fronts[name]) for name, _ in shown]
    keys = (Key("on the front", "mark-best", "circle"), Key("beaten by another row", "mark-changed", "circle"))
    return Figure("front", title, caption, drawings, tables[0], keys, tuple(tables[1:]))


def _across(point: StudyPoint, costs: bool) -> float:
    return float((point.cost if costs else point.devices) or 0.0)


def _drawing(
    study: Study,
    groups: Sequence[Group],
    fronts: dict[str, tuple[StudyPoint, ...]],
    costs: bool,
    width: float,
    title: str,
) -> Drawing:
    columns = max(1, min(round(width / PANEL), len(groups)))
    panel = width / columns
    body: list[Markup] = []
    for index, (name, points) in enumerate(groups):
        x, y = index % columns * panel, index // columns * HEIGHT
        body += _panel(study, name, points, fronts[name], costs, (x, x + panel), y)
    described = f"{len(groups)} panels. " + " ".join(
        f"{name or 'All rows'}: {len(fronts[name])} of {len(points)} rows on the front." for name, points in groups
    )
    return Drawing(width, -(-len(groups) // columns) * HEIGHT, joined(body), title, described, linked=True)


def _panel(
    study: Study,
    name: str,
    points: Sequence[StudyPoint],
    front: Sequence[StudyPoint],
    costs: bool,
    between: tuple[float, float],
    top: float,
) -> list[Markup]:
    left, right = between[0] + LEFT, between[1] - RIGHT
    metric = METRICS["step-time"]
    reached = [end for point in front for end in metric.between(point) or ()]
    times = [*(point.batch_time or 0.0 for point in points), *reached]
    along = fitted([_across(point, costs) for point in points], left + 8, right - 8)
    up = fitted(times, top + BOTTOM, top + TOP)
    size, _ = metric.unit_of(times)
    across = [each for each in ticks(along.low, along.high, 4) if costs or each.is_integer()]
    body = [
        text(between[0] + 4, top + 14, shortened(name or "All rows", between[1] - between[0] - 8), "strong"),
        text(between[0] + 4, top + 30, metric.with_unit(times), "tick"),
        left_axis(up, ticks(up.low, up.high, 5), lambda value: f"{value / size:.4g}", left, right),
        bottom_axis(along, across or [_across(points[0], costs)], _short, top + TOP, top + BOTTOM),
        text(right, top + BOTTOM + 34, "cost to train" if costs else "devices", "tick", "end"),
    ]
    optimal = {point.number for point in front}
    beaten = [point for point in points if point.number not in optimal]
    step = max(1, -(-len(beaten) // MOST_DRAWN))
    places = ((along(_across(point, costs)) - 2, up(point.batch_time or 0.0)) for point in beaten[::step])
    dots = "".join(f"M{number(x)} {number(y)}a2 2 0 1 0 4 0a2 2 0 1 0 -4 0" for x, y in places)
    if dots:
        body.append(element("path", d=dots, class_="mark-changed"))
    body.append(whiskers([(along(_across(point, costs)), metric.between(point)) for point in front], up, "line-blue"))
    for point in front:
        drawn = mark("circle", along(_across(point, costs)), up(point.batch_time or 0.0), "mark-best")
        body.append(linked(point, drawn, study.said(metric, point)))
    return body


def _short(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (1e3 if unit == 'k' else size):.4g} {unit}"
    return f"{value:.4g}"


def _table(study: Study, name: str, front: Sequence[StudyPoint]) -> Table:
    """The rows of a front, fastest first."""
    header = ("row", *(axis.name for axis in study.compared), "step time", "devices", "memory", "cost", "plan")
    rows = tuple(
        (
            Cell(f"{point.number:,}", link=f"#{point.anchor}"),
            *(Cell(axis.shown(point)) for axis in study.compared),
            Cell.seconds(point.batch_time or 0.0),
            Cell("" if point.devices is None else f"{point.devices:,}", point.devices),
            Cell("") if point.memory is None else Cell.size(point.memory),
            Cell("" if point.cost is None else f"{point.cost:,.0f}", point.cost),
            Cell(point.plan),
        )
        for point in sorted(front, key=lambda point: (point.batch_time or 0.0, point.number))
    )
    of = f" of {name}" if name else ""
    return Table(f"The Pareto front{of}", header, rows, words=(0, len(header) - 1))
