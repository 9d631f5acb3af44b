"""Marks of points in charts: series differ in their form as well as in their colour."""

from markupsafe import Markup

from nest.reporting.svg import element, number

FORMS = ("circle", "square", "triangle", "diamond", "wedge")
"""Forms in the order in which series take them."""

SIZE = 4.5
"""Half the height of a mark, px."""

LINE = 14.0
"""Length of a line in a legend, px."""


def mark(form: str, x: float, y: float, style: str) -> Markup:
    """A mark.

    Args:
        form: one of `FORMS`, `cross` or `line`.
        x: px; of its middle.
        y: px; of its middle.
        style: its class.
    """
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
