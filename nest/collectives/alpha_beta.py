"""Collectives by latency and bandwidth: hierarchical ring or rings over all (PROBLEM.md section 1).

Every call is affine in its bytes once the members are known, so the model is a table of lines
`latency + bytes * seconds_per_byte`, of which the lowest counts. A level made of a link of the catalogue has several
for each kind of collective, those of a communication library's protocols; other levels have the one of PROBLEM.md.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy

from nest.collectives.rings import Line, lines_of
from nest.instance import Array, Level


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
    return lines_of(kind, shape, levels)
