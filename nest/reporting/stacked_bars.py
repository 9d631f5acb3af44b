"""A horizontal bar for each stage, made of causes one after the other."""

from collections.abc import Callable, Mapping, Sequence

from attrs import frozen
from markupsafe import Markup

from nest.reporting.axes import Scale, bottom_axis, ticks
from nest.reporting.palette import cause_style, label_style
from nest.reporting.svg import NARROW, WIDTH, element, fits, joined, number, text

LEFT, RIGHT, TOP, BELOW = 48.0, 184.0, 28.0, 28.0
"""Room around the bars, px: for the names of stages, for totals, for the limit's name, for the axis."""

MARGIN, ABOVE = 16.0, 15.0
"""Room behind bars and above each, px, where the drawing is so narrow that totals stand above their bars."""

PX_PER_TICK = 100
"""Of the axis."""


@frozen
class Bar:
    """One stage.

    Attributes:
        name: of the stage, such as `7`.
        parts: sizes by cause, in the order they are drawn.
        total: what is said behind the bar.
        reach: how far a dashed box goes on behind the parts; None: there is none.
        alarm: whether what is said is bad news.
    """

    name: str
    parts: Mapping[str, float]
    total: str
    reach: float | None = None
    alarm: bool = False


@frozen
class Limit:
    """A line across all bars.

    Attributes:
        value: where it stands.
        label: what it is.
    """

    value: float
    label: str


def stacked_bars(
    bars: Sequence[Bar],
    names: Mapping[str, str],
    shown: Callable[[float], str],
    base: float = 10.0,
    limit: Limit | None = None,
    width: float = WIDTH,
) -> tuple[float, Markup]:
    """The height and the elements of a drawing.

    Args:
        bars: from top to bottom.
        names: of the causes.
        shown: a size as people read it.
        base: of round sizes, see `ticks`.
        limit: the line across, if there is one.
        width: of the drawing, px.
    """
    step, thick = _pitch(len(bars))
    above = ABOVE if width < NARROW else 0.0
    step += above
    most = max([max(sum(bar.parts.values()), bar.reach or 0.0) for bar in bars] + ([limit.value] if limit else []))
    scale = Scale(0.0, most or 1.0, LEFT, width - (MARGIN if above else RIGHT))
    bottom = TOP + step * len(bars)
    axis = bottom_axis(
        scale, ticks(0.0, most, max(2, min(8, int((scale.end - LEFT) / PX_PER_TICK))), base), shown, TOP, bottom
    )
    drawn = [axis, text(LEFT - 10, TOP - 8, "stage", "tick", "end")]
    for place, bar in enumerate(bars):
        drawn += _bar(bar, names, shown, scale, TOP + step * place + above + (step - above - thick) / 2, thick, above)
    if limit is not None:
        x = scale(limit.value)
        drawn.append(element("path", d=f"M{number(x)} {number(TOP - 4)}V{number(bottom)}", class_="line strong"))
        drawn.append(text(x, TOP - 10, limit.label, "", "end" if x > width / 2 else "start"))
    return bottom + BELOW, joined(drawn)


def _pitch(bars: int) -> tuple[float, float]:
    """From one bar to the next, and the thickness of a bar, px: many stages are drawn closer."""
    return (30.0, 22.0) if bars <= 24 else (20.0, 15.0) if bars <= 48 else (14.0, 11.0)


def _bar(
    bar: Bar,
    names: Mapping[str, str],
    shown: Callable[[float], str],
    scale: Scale,
    top: float,
    thick: float,
    above: float,
) -> list[Markup]:
    middle, small = top + thick / 2 + 4, "" if thick >= 15 else "small"
    drawn = [text(LEFT - 10, middle, bar.name, small, "end")]
    done = 0.0
    for cause, size in bar.parts.items():
        start, end = scale(done), scale(done + size)
        done += size
        if end - start < 0.05:
            continue
        told = element("title", f"{names[cause]}: {shown(size)}")
        drawn.append(
            element("rect", told, class_=f"part {cause_style(cause)}", x=start, y=top, width=end - start, height=thick)
        )
        label = shown(size)
        if thick >= 15 and fits(label, end - start - 10, 11):
            drawn.append(_label((start + end) / 2, middle, label, label_style(cause)))
    if bar.reach is not None and scale(bar.reach) - scale(done) > 0.5:
        width = scale(bar.reach) - scale(done)
        drawn.append(element("rect", class_="line dashed", x=scale(done), y=top + 0.5, width=width, height=thick - 1))
    style = f"{small} alarm".strip() if bar.alarm else small
    if above:
        place = {"x": LEFT, "y": top - 4}
        drawn.append(element("text", bar.total, class_=f"{style} halo".strip(), paint_order="stroke", **place))
    else:
        drawn.append(text(scale.end + 12, middle, bar.total, style))
    return drawn


def _label(x: float, y: float, told: str, style: str) -> Markup:
    """A size inside a part; where the part is hatched, letters have a ground of their own."""
    if style:
        return text(x, y, told, f"inside {style}", "middle")
    # An attribute and no style: checkers of CSS know no `paint-order`.
    return element("text", told, x=x, y=y, class_="inside ground", text_anchor="middle", paint_order="stroke")
