"""Sums over stages as differences of sums over downsets, without cancellation.

A floating-point difference of two sums is only exact to the rounding of the larger: next to a layer of 1e26 bytes, one
of 1e9 disappears. So a row of numbers is split into parts, each on a grid so coarse that every sum and difference is
exact; only adding the parts of a stage rounds. All parts are at least 0, so a sum over a stage is exact to `parts`
times 2**-53 of itself, whatever else is in the row (docs/explanation/numbers.md).
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
"""Bits of a part's sum over all layers. A float64 has one more, to spare for rounding the sum that sets the grid."""


@frozen(eq=False, repr=False)
class Sums:
    """Sums over the layers of each downset, shape `(downsets,)`."""

    parts: tuple[Array, ...]  # Exact summands, largest first.
    endless: Array | None = None  # Layers with infinite numbers; None: there are none.
    whole: Array = field(init=False)  # Rounded sums, infinite with an infinite layer: for bounds, not for differences.

    @whole.default
    def _rounded(self) -> Array:
        whole: Array = sum(self.parts[-2::-1], self.parts[-1])
        return whole if self.endless is None else numpy.where(self.endless > 0, numpy.inf, whole)

    def over(self, stages: Stages) -> Array:
        """Sum over the layers of each stage, shape `(stages,)`."""
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
    """Sums of each of `rows`, shape `(layers,)` and at least 0, over the downsets."""
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
    """Split finite `rows`, shape `(rows, layers)`, into summands on grids of their own.

    A part holds multiples of a power of two whose total fits `GRID_BITS` bits and a spare one. Returns, from coarse to
    fine grids, the rows with a part there, and these parts.
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


FEW_VALUES = 32  # Most distinct values for finding the largest of a stage value by value.


@frozen(eq=False, repr=False)
class ByValue:
    """For each distinct value, ascending, the layers of each downset with at least that value."""

    counts: tuple[tuple[float, NDArray[numpy.int64]], ...]

    @classmethod
    def of(cls, members: NDArray[numpy.bool_], values: Array) -> "ByValue":
        """Prepare for the downsets of `members`, shape `(downsets, layers)`, and `values`, shape `(layers,)`."""
        distinct = (value for value in sorted(set(values.tolist())) if value > 0)
        return cls(tuple((value, members[:, values >= value].sum(axis=1)) for value in distinct))

    def over(self, stages: Stages) -> Array:
        """Largest value in each stage, 0 if none is positive, shape `(stages,)`."""
        result = numpy.zeros(len(stages))
        for value, count in self.counts:
            result[count.take(stages.larger) > count.take(stages.smaller)] = value
        return result


@frozen(eq=False, repr=False)
class AlongRuns:
    """Maxima over runs of steps of a chain of downsets: 1,000 different layers take 7 s with it, 19 s by value.

    Row `k` has the largest value over 2**k steps; two of its entries cover any run of 2**k to 2**(k+1).
    """

    rows: tuple[Array, ...]

    @classmethod
    def of(cls, members: NDArray[numpy.bool_], values: Array) -> "AlongRuns":
        """Prepare for the nested downsets of `members`; shapes as above."""
        rows = [numpy.where(members[1:] & ~members[:-1], values, 0.0).max(axis=1)]
        while 2 ** len(rows) < len(members):
            half = 2 ** (len(rows) - 1)
            rows.append(numpy.maximum(rows[-1][:-half], rows[-1][half:]))
        return cls(tuple(rows))

    def over(self, stages: Stages) -> Array:
        """Largest value in each stage, 0 if none is positive, shape `(stages,)`."""
        result = numpy.zeros(len(stages))
        length = stages.larger - stages.smaller
        for power, row in enumerate(self.rows):
            chosen = numpy.flatnonzero((length >= 2**power) & (length < 2 ** (power + 1)))
            first, last = stages.smaller[chosen], stages.larger[chosen] - 2**power
            result[chosen] = numpy.maximum(row[first], row[last])
        return result


def largest(downsets: Downsets, values: Array) -> ByValue | AlongRuns:
    """Choose the faster way to find the largest of `values` in a stage."""
    if downsets.chain is not None and len(set(values.tolist())) > FEW_VALUES:
        return AlongRuns.of(downsets.members, values)
    return ByValue.of(downsets.members, values)


class OverStages(Protocol):
    """Sum or maximum over the layers of stages."""

    def over(self, stages: Stages) -> Array:
        """Value of each stage, shape `(stages,)`."""


class SumsOverStages(OverStages, Protocol):
    """Sum over the layers of stages."""

    @property
    def whole(self) -> Array:
        """Rounded lower bound by downset: for bounds, not for differences. Shape `(downsets,)`."""


class ModeSums(NamedTuple):
    """A recompute mode summed over downsets."""

    extra: SumsOverStages  # Seconds added to the backward pass.
    first: SumsOverStages  # Bytes of one micro-batch in flight, infinite if a layer cannot run in this mode.
    more: SumsOverStages  # Bytes of each further one.
    peak: OverStages  # Transient bytes; a stage takes the largest of its layers.
    # A stage keeps its inputs for each further micro-batch; if not all stages do, positive for layers that require it.
    stash_inputs: bool | OverStages
    busy: tuple[SumsOverStages, ...] = ()  # By level, seconds that recomputation occupies ports; empty: unknown.


class CandidateSums(NamedTuple):
    """A candidate summed over downsets, for any replicas and rank order."""

    candidate: Candidate
    cut: Array  # Bytes that enter each downset, shape `(downsets,)`.
    compute: Sums  # Forward and backward seconds.
    modes: Mapping[str, ModeSums]
    # By parameter group: weights, gradients, optimizer bytes, update seconds and pieces.
    state: tuple[tuple[ParameterGroup, Sums, Sums, Sums, Sums, Sums | None], ...]
    busy: tuple[Sums, ...] = ()  # By level, seconds that collectives occupy ports; empty: no ports.


class PartSums(NamedTuple):
    """A candidate's times summed over downsets by separately weighted part."""

    forward: Sums  # Seconds of forward passes.
    inputs: Sums  # Seconds of input gradients.
    weights: Sums  # Seconds of weight gradients.


def part_sums(candidate: Candidate, downsets: Downsets) -> PartSums:
    """Times of `candidate` by parts over `downsets`."""
    return PartSums(*sums_of(part_rows(candidate), downsets))


def cuts(instance: Instance, candidate: Candidate, downsets: Downsets) -> Array:
    """`cut(D)` of PROBLEM.md section 4 for every downset, bytes."""
    cut: Array = downsets.crossing(instance.graph.tensors) @ candidate.tensor_bytes
    return cut
