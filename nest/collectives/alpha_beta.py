"""Collectives by latency and bandwidth: hierarchical ring or rings over all (PROBLEM.md section 1).

Every call is affine in its bytes once the members are known, so the model is a table of lines
`latency + bytes * seconds_per_byte`, of which the lowest counts. A level made of a link of the catalogue has several
for each kind of collective, those of a communication library's protocols; other levels have the one of PROBLEM.md.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import prod

import numpy

from nest.collectives.rings import Line, lines_of
from nest.instance import Array, Level


class AlphaBeta:
    """The default collective model."""

    name = "alpha-beta"

    def time(
        self,
        kind: str,
        bytes: float,  # noqa: A002
        shape: Sequence[int],
        levels: Sequence[Level],
        members: int | None = None,
    ) -> float:
        """Seconds that `kind` takes on a set of devices (PROBLEM.md section 1). One member and no bytes cost nothing.

        Args:
            kind: `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all` or `point_to_point`.
            bytes: the full (unsharded) buffer; for `all_to_all` what each member holds.
            shape: members per level-0 group, level-0 groups per level-1 group, ...
            levels: the network, innermost first, as long as `shape`.
            members: devices in the set; None: as many as the product of `shape`.

        Raises:
            ValueError: `kind` is none of the five.
        """
        lines = _lines(kind, tuple(shape), tuple(levels), members)
        return min(line.latency + bytes * line.slope for line in lines) if bytes else 0.0

    def times(
        self,
        kind: str,
        bytes: Array,  # noqa: A002
        shape: Sequence[int],
        levels: Sequence[Level],
        members: int | None = None,
    ) -> Array:
        """`time` for an array of `bytes`: seconds, of the same shape."""
        lines = _lines(kind, tuple(shape), tuple(levels), members)
        seconds = numpy.minimum.reduce([line.latency + bytes * line.slope for line in lines])
        return numpy.where(bytes == 0, 0.0, seconds)

    def by_level(
        self,
        kind: str,
        bytes: Array,  # noqa: A002
        shape: Sequence[int],
        levels: Sequence[Level],
        members: int | None = None,
    ) -> Array:
        """Seconds for which a member's port at each level is occupied, shape `(levels, *bytes.shape)`.

        Of a hierarchical ring each level's own term; a flat ring occupies the outermost level of the set; of rings over
        several rails each level is occupied as long as its own links are at work.
        """
        lines = _lines(kind, tuple(shape), tuple(levels), members)
        taken = numpy.array([line.latency + bytes * line.slope for line in lines]).argmin(axis=0)
        ports = numpy.array([line.ports for line in lines])  # of lines, levels, latency and slope
        shares = numpy.moveaxis(ports[taken], (-2, -1), (0, 1))
        return numpy.where(bytes == 0, 0.0, shares[:, 0] + bytes * shares[:, 1])


# A solver asks for a few sets of devices very often.
@lru_cache(maxsize=4096)
def _lines(kind: str, shape: tuple[int, ...], levels: tuple[Level, ...], members: int | None) -> tuple[Line, ...]:
    return lines_of(kind, shape, levels, prod(shape) if members is None else members)
