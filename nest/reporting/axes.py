"""Scales, ticks and axes of figures."""

import math
from collections.abc import Callable, Sequence

from attrs import frozen
from markupsafe import Markup

from nest.reporting.svg import element, joined, text
from nest.tolerances import AGREEMENT

_STEPS = (1.0, 2.0, 5.0, 10.0)


@frozen
class Scale:
    """From values to coordinates, in a straight line.

    Attributes:
        low: the value at `start`.
        high: the value at `end`.
        start: px.
        end: px.
    """

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
    found = tuple(index * step for index in range(first, last + 1))
    return found[:: 1 if len(found) <= most else 2]


def bottom_axis(
    scale: Scale, values: Sequence[float], shown: Callable[[float], str], top: float, bottom: float
) -> Markup:
    """Grid lines from `top` to `bottom` at `values` of a horizontal scale, and what they are called below."""
    lines = "".join(f"M{scale(value):.1f} {top:.1f}V{bottom:.1f}" for value in values)
    labels = [text(scale(value), bottom + 16, shown(value), "tick", "middle") for value in values]
    return joined([element("path", d=lines, class_="grid"), *labels])


def left_axis(
    scale: Scale, values: Sequence[float], shown: Callable[[float], str], left: float, right: float
) -> Markup:
    """Grid lines from `left` to `right` at `values` of a vertical scale, and what they are called on the left."""
    lines = "".join(f"M{left:.1f} {scale(value):.1f}H{right:.1f}" for value in values)
    labels = [text(left - 8, scale(value) + 4, shown(value), "tick", "end") for value in values]
    return joined([element("path", d=lines, class_="grid"), *labels])
