"""Times on axes: round, in one unit along an axis, and never one over the other."""

import math
from collections.abc import Sequence

from markupsafe import Markup

from nest.reporting.axes import Scale, ticks
from nest.reporting.svg import element, joined, text
from nest.tolerances import AGREEMENT

PX_PER_TICK = 75
"""Room for a label and the space after it."""

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_DIGIT = 6.7


def clock(value: float, step: float, longest: float) -> str:
    """A time on an axis: in the unit that suits its end, with the digits that its steps need.

    Args:
        value: seconds.
        step: seconds between two labels.
        longest: seconds; the greatest of the axis.
    """
    size, unit = next((each for each in _UNITS if longest >= each[0]), _UNITS[-1])
    digits = max(0, math.ceil(-math.log10(step / size) - AGREEMENT)) if step > 0 else 0
    return f"{value / size:.{min(digits, 6)}f} {unit}"


def time_axis(scales: Sequence[Scale], longest: float, top: float, bottom: float) -> Markup:
    """Grid lines and labels of one or several scales side by side; labels that would touch the one before are left out.

    Args:
        scales: from seconds to px, in order.
        longest: seconds; the greatest time of all.
        top: px; where grid lines begin.
        bottom: px; where they end, above the labels.
    """
    lines, labels, reached = "", [], -math.inf
    for scale in scales:
        values = ticks(scale.low, scale.high, max(2, int((scale.end - scale.start) / PX_PER_TICK)))
        step = values[1] - values[0] if len(values) > 1 else scale.high - scale.low
        for value in values:
            x, told = scale(value), clock(value, step, longest)
            lines += f"M{x:.1f} {top:.1f}V{bottom:.1f}"
            half = len(told) * _DIGIT / 2
            if x - half > reached:
                labels.append(text(x, bottom + 16, told, "tick", "middle"))
                reached = x + half + _DIGIT
    return joined([element("path", d=lines, class_="grid"), *labels])
