"""Sums over stages as differences of sums over downsets, without cancellation.

A stage is what a larger downset holds outside a smaller one, so what its layers add up to is a difference of two sums.
In floating point such a difference is only right to the rounding of the larger sum: beside a layer of 1e26 bytes, one
of 1e9 disappears. Here a row of numbers is cut into parts, each on a grid of its own so coarse that every sum on it is
exact; so are the differences, and only adding the parts of a stage rounds. The parts are all 0 or more, so that a sum
over a stage is right to `parts` times 2**-53 of itself, whatever else stands in the row (docs/explanation/numbers.md).
"""

from collections.abc import Sequence

import numpy
from attrs import field, frozen
from numpy.typing import NDArray

from nest.instance import Array
from nest.solve.dp.downsets import Downsets
from nest.solve.dp.pairs import Stages

GRID_BITS = 52
"""Bits of a part's sum over all layers. A float64 holds one more, to spare for the rounding of the sum that sets the
grid."""


@frozen(eq=False)
class Sums:
    """What the layers of each downset add up to.

    Attributes:
        parts: sums without rounding, the largest first; together they are the whole. Each of shape `(downsets,)`.
        endless: how many layers of each downset hold an infinite number; None where none does. Shape `(downsets,)`.
        whole: the sums rounded, infinite with an infinite layer: for bounds, not to be subtracted. Shape `(downsets,)`.
    """

    parts: tuple[Array, ...]
    endless: Array | None = None
    whole: Array = field(init=False)

    def __attrs_post_init__(self) -> None:
        whole = sum(self.parts[-2::-1], self.parts[-1])
        if self.endless is not None:
            whole = numpy.where(self.endless > 0, numpy.inf, whole)
        object.__setattr__(self, "whole", whole)

    def over(self, stages: Stages) -> Array:
        """What the layers of each stage add up to, shape `(stages,)`."""
        return self.between(stages.larger, stages.smaller)

    def between(self, larger: "Places", smaller: "Places") -> Array:
        """The same of stages given by their larger and smaller downsets."""
        # The smallest part first, so that each addition rounds to the size of the whole at most.
        total: Array = self.parts[-1][larger] - self.parts[-1][smaller]
        for part in self.parts[-2::-1]:
            total += part[larger] - part[smaller]
        if self.endless is not None:
            total[self.endless[larger] > self.endless[smaller]] = numpy.inf
        return total


Places = NDArray[numpy.int32] | NDArray[numpy.int64] | slice | int
"""Indices of downsets."""


def sums_of(rows: Sequence[Array], downsets: Downsets) -> list[Sums]:
    """Sums of each of `rows`, shape `(layers,)` and 0 or more, over the downsets."""
    every = numpy.array(rows)
    infinite = numpy.isinf(every)
    endless = numpy.flatnonzero(infinite.any(axis=1))
    cut = grid_parts(numpy.where(infinite, 0.0, every))
    # One product reads the downsets once. On its grid each sum is exact, in whatever order a library adds.
    columns = numpy.concatenate([*(part for _, part in cut), infinite[endless].astype(numpy.float64)])
    summed = downsets.sums(columns.T).T.copy()
    parts: list[list[Array]] = [[] for _ in rows]
    for row, column in zip(numpy.concatenate([which for which, _ in cut]), summed):  # noqa: B905 - counts follow
        parts[row].append(column)
    counts = dict(zip(endless.tolist(), summed[len(summed) - len(endless) :], strict=True))
    return [Sums(tuple(each), counts.get(row)) for row, each in enumerate(parts)]


def grid_parts(rows: Array) -> list[tuple[NDArray[numpy.int64], Array]]:
    """Finite `rows`, shape `(rows, layers)`, as sums of parts, each row's on grids of their own.

    A part holds multiples of a power of two that fit `GRID_BITS` bits and a spare one when all are added up.

    Returns: for the coarsest grids, then finer ones: the rows that have a part there, and these parts.
    """
    found = []
    which, rest = numpy.arange(len(rows)), rows
    while len(which):
        exponents = numpy.frexp(rest.sum(axis=1))[1][:, None] - GRID_BITS
        part = numpy.ldexp(numpy.floor(numpy.ldexp(rest, -exponents)), exponents)
        found.append((which, part))
        rest = rest - part
        left = rest.any(axis=1)
        which, rest = which[left], rest[left]
    return found
