"""Sensitivity: what numbers of the problem are worth, with the plan kept and with the best plan then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log2
from typing import TYPE_CHECKING

from markupsafe import Markup

from nest.units import format_bytes
from nest_page.records import Cell, Drawing, Figure, Key, Table
from nest_page.svg import WIDTHS, Scale, element, joined, left_axis, mark, number, shortened, text, ticks

if TYPE_CHECKING:
    from nest.public.questions import Response

PANEL = 360
"""Width of a panel with its space, px, about: as many stand side by side as there is room for."""

REACH = 96.0
"""Room for what is said behind the name of a panel, px."""

LEFT, RIGHT, TOP, BOTTOM, HEIGHT = 62.0, 18.0, 34.0, 150.0, 200.0
"""Margins in a panel, px: both sides, first and last line; and the height of a panel."""

MARGIN = 0.12
"""Share of the axis left free above and below."""

SEEN = 1.0
"""Distance from which the kept plan has a mark of its own beside the best plan's, px."""

LEVEL = 5e-4
"""Relative change below which there is none worth a number."""

MINUS = "\N{MINUS SIGN}"

LEAST_SPAN = 0.02
"""Change that axes span at least, so that far smaller changes look level."""


def sensitivity_figure(responses: Sequence[Response]) -> Figure:
    """A panel for every number that can be varied, the one that matters the most first."""
    names = tuple(dict.fromkeys(each.parameter for each in responses))
    changed = sum(each.changed for each in responses)
    any_unproved = any(not each.proved for each in responses)
    unproved = " Where the search was stopped early, a faster plan may exist." if any_unproved else ""
    caption = (
        "The step time (of a sample, where the global batch varies) against the plan's, with one number of the "
        "problem multiplied and all else unchanged: with this plan kept and with the best plan. Panels are in the "
        "order of how much their number matters, on one vertical axis; behind each name stands the most that the best "
        "plan's time moves. "
        f"{_most(responses)} {_changes(changed, len(responses))}{unproved}"
    )
    order = sorted(names, key=lambda name: -abs(_furthest([each for each in responses if each.parameter == name])))
    keys = (
        Key("best plan", "mark-best", "circle"),
        Key("this plan (dashed)", "mark-kept", "square"),
        Key("another plan is best", "mark-changed", "diamond"),
        Key("this plan does not fit", "cross", "cross"),
    )
    return Figure(
        "sensitivity",
        "Sensitivity",
        caption,
        tuple((_drawing(responses, order, width),) for width in WIDTHS),
        _table(responses),
        keys,
    )


def _furthest(own: Sequence[Response]) -> float:
    """Largest change of the best plan's time."""
    return max((each.best for each in own if each.best is not None), key=abs, default=0.0)


def _most(responses: Sequence[Response]) -> str:
    """The number that moves the step time the most."""
    planned = [each for each in responses if each.best is not None]
    if not planned:
        return "No plan fits with any of the numbers changed."
    most = max(planned, key=lambda each: abs(each.best or 0.0))
    return f"The most is {signed(most.best or 0.0)}, with {most.parameter} times {most.factor:g}."


def _changes(changed: int, of: int) -> str:
    if not changed:
        return "None of these changes the best plan."
    return f"In {changed} of {of}, another plan is best; see the table."


def signed(change: float) -> str:
    """A relative change as people read it."""
    return f"{100 * change:+.1f} %".replace("-", MINUS) if abs(change) >= LEVEL else "no change"


def _drawing(responses: Sequence[Response], order: Sequence[str], width: float) -> Drawing:
    columns = max(1, round(width / PANEL))
    rows, panel = -(-len(order) // columns), width / columns
    factors = sorted({each.factor for each in responses} | {1.0})
    body: list[Markup] = []
    for index, name in enumerate(order):
        x, up = index % columns * panel, _vertical(responses, index // columns * HEIGHT)
        own = [each for each in responses if each.parameter == name]
        body += _panel(name, own, up, _levels(responses, up), (x, x + panel), factors)
    description = (
        f"{len(order)} panels, one for each number that varies. Each shows the change of the step time over what the "
        "number is multiplied by: a solid line for the best plan, a dashed one for this plan kept. "
        + " ".join(_described(name, [each for each in responses if each.parameter == name]) for name in order)
    )
    return Drawing(width, rows * HEIGHT, joined(body), "Step time over factors on numbers of the problem", description)


def _vertical(responses: Sequence[Response], top: float) -> Scale:
    """The axis of a panel: from the lowest to the highest of all values and 0, with some space."""
    values = [0.0, *(value for each in responses for value in (each.kept, each.best) if value is not None)]
    middle, span = (min(values) + max(values)) / 2, max(max(values) - min(values), LEAST_SPAN)
    return Scale(middle - (0.5 + MARGIN) * span, middle + (0.5 + MARGIN) * span, top + BOTTOM, top + TOP)


def _levels(responses: Sequence[Response], up: Scale) -> tuple[float, ...]:
    """Lines of panels; only the plan's own line if nothing changes."""
    moves = any(abs(value) >= LEVEL for each in responses for value in (each.kept, each.best) if value is not None)
    return ticks(up.low, up.high, 5) if moves else (0.0,)


def _described(name: str, own: Sequence[Response]) -> str:
    parts = [f"times {each.factor:g} {'none fits' if each.best is None else signed(each.best)}" for each in own]
    return f"{name}: {', '.join(parts)}."


def _panel(
    name: str,
    own: Sequence[Response],
    up: Scale,
    levels: Sequence[float],
    between: tuple[float, float],
    factors: Sequence[float],
) -> list[Markup]:
    """One number's lines over the logarithm of its factors, through the plan at factor 1."""
    left, right = between[0] + LEFT, between[1] - RIGHT
    along = Scale(log2(factors[0]), log2(factors[-1]), left + 10, right - 10)
    heading = shortened(name[:1].upper() + name[1:], right - left - REACH, 13)  # Bold letters are wider.
    body = [
        text(left, up.end - 14, heading, "strong"),
        text(right, up.end - 14, signed(_furthest(own)), "tick", "end"),
        left_axis(up, levels, _percent, left, right),
        element("path", d=f"M{number(left)} {number(up(0.0))}H{number(right)}", class_="line"),
        *(
            text(along(log2(each)), up.start + 16, f"\N{MULTIPLICATION SIGN} {each:g}", "tick", "middle")
            for each in factors
        ),
    ]
    body += _series(own, lambda each: each.kept, along, up, "series kept")
    body += _series(own, lambda each: each.best, along, up, "series best")
    for each in own:
        x = along(log2(each.factor))
        if each.kept is None:
            body.append(mark("cross", x, up.start - 8, "cross"))
        elif each.best is None or abs(up(each.kept) - up(each.best)) >= SEEN:
            body.append(mark("square", x, up(each.kept), "mark-kept"))
        if each.best is not None:
            form, style = ("diamond", "mark-changed") if each.changed else ("circle", "mark-best")
            body.append(mark(form, x, up(each.best), style))
    return body


def _percent(change: float) -> str:
    return f"{100 * change:+.3g} %".replace("-", MINUS) if change else "0 %"


def _series(
    own: Sequence[Response], value_of: Callable[[Response], float | None], along: Scale, up: Scale, style: str
) -> list[Markup]:
    """A line through the points of a series and the plan; it breaks where nothing fits."""
    points = sorted([*((each.factor, value_of(each)) for each in own), (1.0, 0.0)])
    path, move = "", "M"
    for factor, value in points:
        if value is None:
            move = "M"
            continue
        path += f"{move}{number(along(log2(factor)))} {number(up(value))}"
        move = "L"
    return [element("path", d=path, class_=style)]


def _table(responses: Sequence[Response]) -> Table:
    rows = tuple(
        (
            Cell(each.parameter),
            Cell(f"\N{MULTIPLICATION SIGN} {each.factor:g}", each.factor),
            Cell(quantity(each.value, each.unit), each.value),
            Cell("does not fit") if each.kept is None else Cell(signed(each.kept), each.kept),
            Cell("none fits") if each.best is None else Cell(signed(each.best), each.best),
            Cell(_plan(each)),
        )
        for each in responses
    )
    header = ("number", "factor", "value", "this plan", "best plan", "which then")
    return Table("Step time with one number changed", header, rows, words=(0, 5))


def _plan(each: Response) -> str:
    if each.label is None:
        return ""
    return (each.label if each.changed else "this plan") + ("" if each.proved else " (not proved)")


_SCALES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1.0, ""))


def quantity(value: float, unit: str) -> str:
    """A number with its unit; bytes in binary multiples, all that is per second in decimal ones."""
    if unit == "bytes":
        return format_bytes(value)
    if unit.endswith("/s"):
        size, prefix = next((each for each in _SCALES if value >= each[0]), _SCALES[-1])
        return f"{value / size:.4g} {prefix}{'B/s' if unit == 'bytes/s' else unit}"
    return f"{value:,.4g} {unit}" if value != int(value) else f"{int(value):,} {unit}"
