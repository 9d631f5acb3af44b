"""The largest value of any layer in a stage, for many stages: prepared once from the layers of each downset."""

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.instance import Array
from nest.solve.dp.downsets import Downsets
from nest.solve.dp.pairs import Stages

FEW_VALUES = 32
"""Distinct values up to which the largest of a stage is found value by value."""


@frozen(eq=False)
class ByValue:
    """For each distinct value, ascending, how many layers of each downset have it or more."""

    counts: tuple[tuple[float, NDArray[numpy.int64]], ...]

    @classmethod
    def of(cls, members: NDArray[numpy.bool_], values: Array) -> "ByValue":
        """Prepared for the downsets of `members`, shape `(downsets, layers)`, and `values`, shape `(layers,)`."""
        distinct = (value for value in sorted(set(values.tolist())) if value > 0)
        return cls(tuple((value, members[:, values >= value].sum(axis=1)) for value in distinct))

    def over(self, stages: Stages) -> Array:
        """The largest value in each stage, 0 where none is positive, shape `(stages,)`."""
        result = numpy.zeros(len(stages))
        for value, count in self.counts:
            result[count[stages.larger] > count[stages.smaller]] = value
        return result


@frozen(eq=False)
class AlongRuns:
    """Maxima over runs of steps of a chain of downsets.

    Row `k` holds the largest value over 2**k steps; two of its entries cover any run of 2**k to 2**(k+1).
    """

    rows: tuple[Array, ...]

    @classmethod
    def of(cls, members: NDArray[numpy.bool_], values: Array) -> "AlongRuns":
        """Prepared for the downsets of `members`, each in the next; shapes as above."""
        rows = [numpy.where(members[1:] & ~members[:-1], values, 0.0).max(axis=1)]
        while 2 ** len(rows) < len(members):
            half = 2 ** (len(rows) - 1)
            rows.append(numpy.maximum(rows[-1][:-half], rows[-1][half:]))
        return cls(tuple(rows))

    def over(self, stages: Stages) -> Array:
        """The largest value in each stage, 0 where none is positive, shape `(stages,)`."""
        result = numpy.zeros(len(stages))
        length = stages.larger - stages.smaller
        for power, row in enumerate(self.rows):
            chosen = numpy.flatnonzero((length >= 2**power) & (length < 2 ** (power + 1)))
            first, last = stages.smaller[chosen], stages.larger[chosen] - 2**power
            result[chosen] = numpy.maximum(row[first], row[last])
        return result


def largest(downsets: Downsets, values: Array) -> ByValue | AlongRuns:
    """What finds the largest of `values` in any stage between two of `downsets`, the quicker way."""
    if downsets.chain is not None and len(set(values.tolist())) > FEW_VALUES:
        return AlongRuns.of(downsets.members, values)
    return ByValue.of(downsets.members, values)
