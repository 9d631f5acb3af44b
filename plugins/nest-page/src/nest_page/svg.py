"""SVG elements as text; what people wrote is escaped on its way in."""

import math
from collections.abc import Callable, Iterable, Sequence

from attrs import frozen
from markupsafe import Markup, escape

from nest.tolerances import AGREEMENT

WIDTH = 1120
"""Of a figure that fills the page, CSS pixels on a large screen."""

WIDTHS = (WIDTH, 704, 358)
"""Drawings of a figure: for a large screen, for a tablet and paper, for a phone."""

NARROW = 500
"""Width below which drawings do without words that are said beside them, px."""

_DIGIT = 6.7
"""Mean width of a digit or a letter at 12 px in the page's font, px: system fonts differ by a tenth of it."""


def number(value: float) -> str:
    """A coordinate, to a tenth of a pixel: finer cannot be seen, and costs bytes."""
    text = f"{value:.1f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def element(tag: str, content: str | Markup = "", /, **attributes: str | float | None) -> Markup:
    """One element.

    Args:
        tag: its name.
        content: what stands in it; text that is no `Markup` is escaped.
        attributes: by name, `class_` for `class` and `_` for `-`; numbers are coordinates; None: not written.
    """
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(value) if isinstance(value, str) else number(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    inner = escape(content)
    return Markup(f"<{tag}{written}>{inner}</{tag}>" if inner else f"<{tag}{written}/>")


def joined(parts: Iterable[Markup]) -> Markup:
    """Elements one after the other."""
    return Markup("\n").join(parts)


def text(x: float, y: float, content: str, style: str = "", anchor: str = "start") -> Markup:
    """A line of text; `y` is its base line, `anchor` start, middle or end."""
    return element("text", content, x=x, y=y, class_=style or None, text_anchor=None if anchor == "start" else anchor)


def boxes(places: Iterable[tuple[float, float, float, float]]) -> str:
    """The `d` of one path of many rectangles, `(x, y, width, height)` each: far fewer bytes than as many elements."""
    return "".join(
        f"M{number(x)} {number(y)}h{number(width)}v{number(height)}h{number(-width)}z" for x, y, width, height in places
    )


def fits(content: str, width: float, size: float = 12) -> bool:
    """Return whether a text at `size` px is sure to fit into `width` px."""
    return len(content) * _DIGIT * size / 12 <= width


def shortened(content: str, width: float, size: float = 12) -> str:
    """The beginning of a text at `size` px that is sure to fit into `width` px, with an ellipsis for the rest."""
    if fits(content, width, size):
        return content
    return content[: max(int(width * 12 / (_DIGIT * size)) - 1, 0)].rstrip() + "…"


FORMS = ("circle", "square", "triangle", "diamond", "wedge")
"""Forms in the order in which series take them."""

SIZE = 4.5
"""Half the height of a mark, px."""

LINE = 14.0
"""Length of a line in a legend, px."""


def mark(form: str, x: float, y: float, style: str) -> Markup:
    """A mark of a class around a point, px: one of `FORMS`, `cross` or `line`."""
    return element("path", d=outline(form, x, y), class_=style)


def outline(form: str, x: float, y: float) -> str:
    """The path of a mark; it begins at `M` and the left end of the mark."""
    r = SIZE
    if form == "circle":
        return f"M{number(x - r)} {number(y)}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0z"
    if form == "square":
        return f"M{number(x - r)} {number(y - r)}h{2 * r}v{2 * r}h{-2 * r}z"
    if form == "triangle":
        return f"M{number(x - r)} {number(y + r)}h{2 * r}l{-r} {-2 * r}z"
    if form == "wedge":
        return f"M{number(x - r)} {number(y - r)}h{2 * r}l{-r} {2 * r}z"
    if form == "cross":
        return f"M{number(x - r)} {number(y - r)}l{2 * r} {2 * r}m0 {-2 * r}l{-2 * r} {2 * r}"
    if form == "line":
        return f"M{number(x - LINE / 2)} {number(y)}h{number(LINE)}"
    return f"M{number(x - r)} {number(y)}l{r} {-r}l{r} {r}l{-r} {r}z"


_STEPS = (1.0, 2.0, 5.0, 10.0)


@frozen
class Scale:
    """In a straight line from values, `low` to `high`, to coordinates, `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The coordinate of a value."""
        span = self.high - self.low
        return self.start + (value - self.low) / span * (self.end - self.start) if span else self.start


def ticks(low: float, high: float, most: int = 6, base: float = 10.0) -> tuple[float, ...]:
    """Round values from `low` to `high`, evenly spaced, at most `most` of them.

    Args:
        low: the least value that may be among them.
        high: the greatest.
        most: how many, at least 2.
        base: what counts as round: powers of it times 1, 2 or 5; 2 for bytes.
    """
    span = high - low
    if not (span > 0 and math.isfinite(span)):
        return (low,)
    if base == 2:
        step = 2.0 ** math.ceil(math.log2(span / most))
    else:
        power = 10.0 ** math.floor(math.log10(span / most))
        step = next(power * each for each in _STEPS if power * each * most >= span * (1 - AGREEMENT))
    first, last = math.ceil(low / step - AGREEMENT), math.floor(high / step + AGREEMENT)
    values = tuple(index * step for index in range(first, last + 1))
    return values[:: 1 if len(values) <= most else 2]


NEAR_ZERO, LEAST_SPAN, AROUND = 1 / 3, 0.02, 0.06
"""Least over greatest value from which an axis begins at 0; share of that it spans at least; share left free around."""


def fitted(values: Sequence[float], start: float, end: float) -> Scale:
    """A scale that some values fill; it begins at 0 where the least is near it."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if low <= NEAR_ZERO * high:
        return Scale(min(low, 0.0), high * (1 + AROUND) or 1.0, start, end)
    middle, span = (low + high) / 2, max(high - low, LEAST_SPAN * high)
    return Scale(middle - (0.5 + AROUND) * span, middle + (0.5 + AROUND) * span, start, end)


def whiskers(places: Iterable[tuple[float, tuple[float, float] | None]], up: Scale, style: str) -> Markup:
    """Thin bars over ranges, each at its x; None: no range."""
    bars = (f"M{number(x)} {number(up(each[0]))}V{number(up(each[1]))}" for x, each in places if each is not None)
    path = "".join(bars)
    return element("path", d=path, class_=f"whisker {style}") if path else Markup("")


def bottom_axis(
    scale: Scale, values: Sequence[float], formatted: Callable[[float], str], top: float, bottom: float
) -> Markup:
    """Grid lines from `top` to `bottom` at `values` of a horizontal scale, and what they are called below."""
    lines = "".join(f"M{scale(value):.1f} {top:.1f}V{bottom:.1f}" for value in values)
    labels = [text(scale(value), bottom + 16, formatted(value), "tick", "middle") for value in values]
    return joined([element("path", d=lines, class_="grid"), *labels])


def left_axis(
    scale: Scale, values: Sequence[float], formatted: Callable[[float], str], left: float, right: float
) -> Markup:
    """Grid lines from `left` to `right` at `values` of a vertical scale, and what they are called on the left."""
    lines = "".join(f"M{left:.1f} {scale(value):.1f}H{right:.1f}" for value in values)
    labels = [text(left - 8, scale(value) + 4, formatted(value), "tick", "end") for value in values]
    return joined([element("path", d=lines, class_="grid"), *labels])


PX_PER_TICK = 75
"""Room for a label and the space after it."""

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def clock(value: float, step: float, longest: float) -> str:
    """A time of an axis, seconds: in the unit that suits its `longest`, with the digits that a `step` needs."""
    size, unit = next((each for each in _UNITS if longest >= each[0]), _UNITS[-1])
    digits = max(0, math.ceil(-math.log10(step / size) - AGREEMENT)) if step > 0 else 0
    return f"{value / size:.{min(digits, 6)}f} {unit}"


def time_axis(scales: Sequence[Scale], longest: float, top: float, bottom: float) -> Markup:
    """Grid lines and labels of one or several scales side by side; labels that would touch the one before are left out.

    `longest` is the greatest time of all, seconds; lines go from `top` to `bottom`, px, above the labels.
    """
    lines, labels, reached = "", [], -math.inf
    for scale in scales:
        values = ticks(scale.low, scale.high, max(2, int((scale.end - scale.start) / PX_PER_TICK)))
        step = values[1] - values[0] if len(values) > 1 else scale.high - scale.low
        for value in values:
            x, label = scale(value), clock(value, step, longest)
            lines += f"M{x:.1f} {top:.1f}V{bottom:.1f}"
            half = len(label) * _DIGIT / 2
            if x - half > reached:
                labels.append(text(x, bottom + 16, label, "tick", "middle"))
                reached = x + half + _DIGIT
    return joined([element("path", d=lines, class_="grid"), *labels])
