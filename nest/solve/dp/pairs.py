"""Pairs of nested downsets: every stage there can be, in rows of one larger downset each."""

from typing import TypeVar

import numpy
from attrs import evolve, frozen
from numpy.typing import NDArray

from nest.instance import Array

T = TypeVar("T", bound=numpy.generic)


@frozen(eq=False)
class Stages:
    """Stages, each the layers of a larger downset outside a smaller one.

    Attributes:
        larger: index of the larger downset of each stage.
        smaller: index of the smaller one.
    """

    larger: NDArray[numpy.int32]
    smaller: NDArray[numpy.int32]

    def __len__(self) -> int:
        return len(self.larger)


@frozen(eq=False)
class Pairs(Stages):
    """Every stage of some lattice of downsets, the larger downsets ascending.

    Stages that cost the same, wherever they lie, are of one kind; what they cost is kept once per kind.

    Attributes:
        count: number of downsets.
        heads: the downsets that are the larger of some pair, ascending.
        starts: where the pairs of each of `heads` begin.
        kind: which kind each pair is of; None where each pair is a kind of its own.
        kinds: one stage of each kind; None as above.
    """

    count: int
    heads: NDArray[numpy.int64]
    starts: NDArray[numpy.int64]
    kind: NDArray[numpy.int32] | None = None
    kinds: Stages | None = None

    @classmethod
    def of(cls, count: int, larger: NDArray[numpy.int32], smaller: NDArray[numpy.int32]) -> "Pairs":
        """The pairs in the order given, in which `larger` must ascend, each of its own kind."""
        starts = numpy.flatnonzero(numpy.diff(larger, prepend=-1))
        return cls(larger, smaller, count, larger[starts].astype(numpy.int64), starts)

    @property
    def distinct(self) -> Stages:
        """One stage of each kind."""
        return self if self.kinds is None else self.kinds

    def with_kinds(self, codes: NDArray[numpy.int64]) -> "Pairs":
        """The same, pairs of equal `codes` (0 or more, one per pair) being of one kind; plain where that saves little.

        Kinds are in the order of their codes, and each is stood for by its first pair.
        """
        if not len(self):
            return self
        if int(codes.max()) < 8 * len(self):
            present = numpy.zeros(int(codes.max()) + 1, dtype=numpy.int32)
            present[codes] = 1
            kind = (numpy.cumsum(present, dtype=numpy.int32) - 1)[codes]
        else:
            kind = numpy.unique(codes, return_inverse=True)[1].reshape(-1).astype(numpy.int32)
        count = int(kind.max()) + 1
        if count * 2 > len(self):
            return self
        first = numpy.empty(count, dtype=numpy.int64)
        first[kind[::-1]] = numpy.arange(len(self))[::-1]
        return evolve(self, kind=kind, kinds=Stages(self.larger[first], self.smaller[first]))

    def spread(self, values: NDArray[T], part: slice = slice(None)) -> NDArray[T]:
        """One of `values`, given per kind, for each pair of `part`."""
        return values[part] if self.kind is None else values[self.kind[part]]

    def kind_of(self, pair: int) -> int:
        """Where the values of one pair lie among those given per kind."""
        return pair if self.kind is None else int(self.kind[pair])

    def only(self, kept: NDArray[numpy.bool_]) -> "Pairs":
        """The pairs for which `kept` is true; all kinds stay."""
        if kept.all():
            return self
        found = Pairs.of(self.count, self.larger[kept], self.smaller[kept])
        return found if self.kind is None else evolve(found, kind=self.kind[kept], kinds=self.kinds)

    def only_kinds(self, kept: NDArray[numpy.bool_]) -> "Pairs":
        """The pairs of the kinds for which `kept` is true; the other kinds go, and those left close up."""
        if self.kind is None or self.kinds is None:
            return self.only(kept)
        if kept.all():
            return self
        found = self.only(kept[self.kind])
        place = (numpy.cumsum(kept) - 1).astype(numpy.int32)
        kinds = Stages(self.kinds.larger[kept], self.kinds.smaller[kept])
        return evolve(found, kind=place[found.kind], kinds=kinds)

    def least(self, values: Array) -> Array:
        """For each downset the least of `values` over the pairs it is the larger of; infinite where there is none."""
        found = numpy.full(self.count, numpy.inf)
        if len(self.starts):
            found[self.heads] = numpy.minimum.reduceat(values, self.starts)
        return found

    def rows(self, first: int, last: int) -> "Rows":
        """The pairs whose larger downset lies from `first` to `last`."""
        begin, end = (int(i) for i in numpy.searchsorted(self.heads, (first, last + 1)))
        if begin == end:
            return Rows(slice(0, 0), self.heads[:0], self.starts[:0])
        start = int(self.starts[begin])
        stop = int(self.starts[end]) if end < len(self.starts) else len(self.larger)
        return Rows(slice(start, stop), self.heads[begin:end], self.starts[begin:end] - start)

    def of_downset(self, index: int) -> slice:
        """Where the pairs lie that downset `index` is the larger of."""
        place = int(numpy.searchsorted(self.heads, index))
        if place == len(self.heads) or self.heads[place] != index:
            return slice(0, 0)
        end = int(self.starts[place + 1]) if place + 1 < len(self.starts) else len(self.larger)
        return slice(int(self.starts[place]), end)


@frozen(eq=False)
class Rows:
    """Some consecutive pairs, whole rows of one larger downset each.

    Attributes:
        pairs: where they lie.
        heads: the larger downset of each row.
        starts: where each row begins, counted from the first of these pairs.
    """

    pairs: slice
    heads: NDArray[numpy.int64]
    starts: NDArray[numpy.int64]

    def __len__(self) -> int:
        return int(self.pairs.stop - self.pairs.start)

    def lower(self, found: Array, values: Array) -> None:
        """Lower `found`, one number per downset, to the least of `values` (one per pair) in each row."""
        if len(self.starts):
            found[self.heads] = numpy.minimum(found[self.heads], numpy.minimum.reduceat(values, self.starts))
