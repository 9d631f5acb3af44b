"""Collectives by latency and bandwidth: hierarchical ring or flat ring (PROBLEM.md section 1).

Every call is affine in its bytes once the members are known, so the model is a table of lines
`latency + bytes * seconds_per_byte`, of which the lowest counts.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from math import prod
from operator import mul

import numpy

from nest.instance import Array, Level

Line = tuple[float, float]
"""`(seconds, seconds per byte)` of one way to run a collective."""


class AlphaBeta:
    """The default collective model."""

    name = "alpha-beta"

    def time(self, kind: str, bytes: float, shape: Sequence[int], levels: Sequence[Level]) -> float:  # noqa: A002
        """Seconds that `kind` takes on a set of devices (PROBLEM.md section 1).

        One member costs nothing. A point-to-point call of 0 bytes costs nothing; a collective of 0 bytes
        still pays its latency, as the formulas of PROBLEM.md do.

        Args:
            kind: `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all` or `point_to_point`.
            bytes: the full (unsharded) buffer; for `all_to_all` what each member holds.
            shape: members per level-0 group, level-0 groups per level-1 group, ...
            levels: the network, innermost first, as long as `shape`.

        Raises:
            ValueError: `kind` is none of the five.
        """
        if kind == "point_to_point" and bytes == 0:
            return 0.0
        return min(latency + bytes * slope for latency, slope in _lines(kind, tuple(shape), tuple(levels)))

    def times(self, kind: str, bytes: Array, shape: Sequence[int], levels: Sequence[Level]) -> Array:  # noqa: A002
        """`time` for an array of `bytes`: seconds, of the same shape."""
        lines = _lines(kind, tuple(shape), tuple(levels))
        seconds = numpy.minimum.reduce([latency + bytes * slope for latency, slope in lines])
        return numpy.where(bytes == 0, 0.0, seconds) if kind == "point_to_point" else seconds


# A solver asks for a few shapes very often.
@lru_cache(maxsize=4096)
def _lines(kind: str, shape: tuple[int, ...], levels: tuple[Level, ...]) -> tuple[Line, ...]:
    if kind not in _KINDS:
        raise ValueError(f"there is no collective called {kind!r}; there are {', '.join(_KINDS)}")
    if prod(shape) <= 1:
        return ((0.0, 0.0),)
    return _KINDS[kind](shape, levels)


def _below(shape: tuple[int, ...]) -> list[int]:
    """Members inside one child of each level: `prod_{j<l} m_j`."""
    return list(accumulate(shape[:-1], mul, initial=1))


def _outermost(shape: tuple[int, ...]) -> int:
    """The level of the whole set."""
    return max(level for level, members in enumerate(shape) if members > 1)


def _gather(shape: tuple[int, ...], levels: tuple[Level, ...]) -> tuple[Line, ...]:
    """Reduce-scatter and all-gather: a ring per level, inner levels first, or one ring over all members."""
    return _hierarchical_ring(shape, levels), _flat_ring(shape, levels)


def _hierarchical_ring(shape: tuple[int, ...], levels: tuple[Level, ...]) -> Line:
    rows = list(zip(shape, _below(shape), levels, strict=True))
    latency = sum((m - 1) * level.latency for m, _, level in rows)
    slope = sum((m - 1) / m / below / level.bandwidth for m, below, level in rows)
    return latency, slope


def _flat_ring(shape: tuple[int, ...], levels: tuple[Level, ...]) -> Line:
    members, outermost = prod(shape), _outermost(shape)
    narrowest = min(level.bandwidth for level in levels[: outermost + 1])
    return (members - 1) * levels[outermost].latency, (members - 1) / members / narrowest


def _all_reduce(shape: tuple[int, ...], levels: tuple[Level, ...]) -> tuple[Line, ...]:
    """A reduce-scatter and an all-gather; what is cheaper for one is cheaper for the other."""
    return tuple((2.0 * latency, 2.0 * slope) for latency, slope in _gather(shape, levels))


def _all_to_all(shape: tuple[int, ...], levels: tuple[Level, ...]) -> tuple[Line, ...]:
    """Each pair directly, over the level where it first meets.

    The flat ring is no alternative here: it would relay every block through the members between, which is
    more traffic than its formula counts.
    """
    members = prod(shape)
    rows = list(zip(shape, _below(shape), levels, strict=True))
    latency = sum((m - 1) * level.latency for m, _, level in rows)
    slope = sum((m - 1) * below / members / level.bandwidth for m, below, level in rows)
    return ((latency, slope),)


def _point_to_point(shape: tuple[int, ...], levels: tuple[Level, ...]) -> tuple[Line, ...]:
    level = levels[_outermost(shape)]
    return ((level.latency, 1.0 / level.bandwidth),)


_KINDS: dict[str, Callable[[tuple[int, ...], tuple[Level, ...]], tuple[Line, ...]]] = {
    "all_reduce": _all_reduce,
    "all_gather": _gather,
    "reduce_scatter": _gather,
    "all_to_all": _all_to_all,
    "point_to_point": _point_to_point,
}
