"""Sums over stages as differences of sums over downsets, without cancellation.

A stage is what a larger downset holds outside a smaller one, so what its layers add up to is a difference of two sums.
In floating point such a difference is only right to the rounding of the larger sum: beside a layer of 1e26 bytes, one
of 1e9 disappears. Here a row of numbers is cut into parts, each on a grid of its own so coarse that every sum on it is
exact; so are the differences, and only adding the parts of a stage rounds. The parts are all 0 or more, so that a sum
over a stage is right to `parts` times 2**-53 of itself, whatever else stands in the row (docs/explanation/numbers.md).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy
from attrs import field, frozen
from numpy.typing import NDArray

from nest.instance import Array, Candidate, Instance, ParameterGroup
from nest.solve.dp.choices import part_rows
from nest.solve.dp.downsets import Downsets
from nest.solve.dp.pairs import Stages

GRID_BITS = 52
"""Bits of a part's sum over all layers. A float64 holds one more, to spare for the rounding of the sum that sets the
grid."""


@frozen(eq=False, repr=False)
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

    @whole.default
    def _rounded(self) -> Array:
        whole: Array = sum(self.parts[-2::-1], self.parts[-1])
        return whole if self.endless is None else numpy.where(self.endless > 0, numpy.inf, whole)

    def over(self, stages: Stages) -> Array:
        """What the layers of each stage add up to, shape `(stages,)`."""
        # Indices of 32 bits: `take` needs half the time of brackets.
        larger, smaller = stages.larger, stages.smaller
        # The smallest part first, so that each addition rounds to the size of the whole at most.
        total: Array = self.parts[-1].take(larger) - self.parts[-1].take(smaller)
        for part in self.parts[-2::-1]:
            total += part.take(larger) - part.take(smaller)
        if self.endless is not None:
            total[self.endless[larger] > self.endless[smaller]] = numpy.inf
        return total


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
    parts = []
    which, rest = numpy.arange(len(rows)), rows
    while len(which):
        exponents = numpy.frexp(rest.sum(axis=1))[1][:, None] - GRID_BITS
        part = numpy.ldexp(numpy.floor(numpy.ldexp(rest, -exponents)), exponents)
        parts.append((which, part))
        rest = rest - part
        left = rest.any(axis=1)
        which, rest = which[left], rest[left]
    return parts


FEW_VALUES = 32
"""Distinct values up to which the largest of a stage is found value by value."""


@frozen(eq=False, repr=False)
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
            result[count.take(stages.larger) > count.take(stages.smaller)] = value
        return result


@frozen(eq=False, repr=False)
class AlongRuns:
    """Maxima over runs of steps of a chain of downsets: 1,000 layers that all differ take 7 s with it, 19 s by value.

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


class OverStages(Protocol):
    """What the layers of stages add up to, or the largest of them."""

    def over(self, stages: Stages) -> Array:
        """Of each stage, shape `(stages,)`."""


class SumsOverStages(OverStages, Protocol):
    """What the layers of stages add up to."""

    @property
    def whole(self) -> Array:
        """Of each downset at least, rounded: for bounds, not to be subtracted. Shape `(downsets,)`."""


class ModeSums(NamedTuple):
    """A recompute mode summed over downsets.

    Attributes:
        extra: seconds added to the backward pass.
        first: bytes for one in-flight micro-batch, infinite where a layer cannot run in this mode.
        more: bytes for each further one.
        peak: transient bytes, of which a stage takes the largest of its layers.
        stash_inputs: whether a stage keeps its inputs for each further micro-batch; where not all stages do, those that
            have layers which ask for it have a positive number.
        busy: by level, seconds for which what runs again occupies ports; none where it says nothing.
    """

    extra: SumsOverStages
    first: SumsOverStages
    more: SumsOverStages
    peak: OverStages
    stash_inputs: bool | OverStages
    busy: tuple[SumsOverStages, ...] = ()


class CandidateSums(NamedTuple):
    """A candidate summed over downsets, whatever the replicas and their order.

    Attributes:
        candidate: the candidate.
        cut: bytes that enter each downset, shape `(downsets,)`.
        compute: forward and backward seconds.
        modes: the recompute modes by name.
        state: by parameter group, the weights, gradients, optimizer bytes, update seconds and pieces.
        busy: by level, seconds for which collectives occupy ports; none where the candidate has no ports.
    """

    candidate: Candidate
    cut: Array
    compute: Sums
    modes: Mapping[str, ModeSums]
    state: tuple[tuple[ParameterGroup, Sums, Sums, Sums, Sums, Sums | None], ...]
    busy: tuple[Sums, ...] = ()


class PartSums(NamedTuple):
    """A candidate's times summed over downsets, by what schedules weigh apart.

    Attributes:
        forward: seconds of forward passes.
        inputs: seconds of the gradients of inputs.
        weights: seconds of the gradients of weights.
    """

    forward: Sums
    inputs: Sums
    weights: Sums


def part_sums(candidate: Candidate, downsets: Downsets) -> PartSums:
    """Times of `candidate` by parts over `downsets`."""
    return PartSums(*sums_of(part_rows(candidate), downsets))


def cuts(instance: Instance, candidate: Candidate, downsets: Downsets) -> Array:
    """`cut(D)` of PROBLEM.md section 4 for every downset, bytes."""
    cut: Array = downsets.crossing(instance.graph.tensors) @ candidate.tensor_bytes
    return cut
