"""Pairs of nested downsets: every stage there can be, in rows of one larger downset each."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import TypeVar

import numpy
from attrs import evolve, frozen
from numpy.typing import NDArray

from nest.instance import Array, Candidate, Instance

T = TypeVar("T", bound=numpy.generic)

SPARSEST = 4
"""Cells of a band for each pair at most."""


def distinct(numbers: NDArray[T]) -> NDArray[T]:
    """The distinct numbers, ascending: `numpy.unique` loads masked arrays for that, a fiftieth of a small solve."""
    ordered: NDArray[T] = numpy.sort(numbers, axis=None)
    first: NDArray[numpy.bool_] = numpy.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    return ordered[first]


@frozen(eq=False, repr=False, slots=False)
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


@frozen(eq=False, repr=False, slots=False)
class Pairs(Stages):
    """Every stage of some lattice of downsets, the larger downsets ascending.

    Stages that cost the same, wherever they lie, are in one equivalence class; what they cost is kept once per class.

    Attributes:
        count: number of downsets.
        heads: the downsets that are the larger of some pair, ascending.
        starts: where the pairs of each of `heads` begin.
        classes: which class each pair is in; None where each pair is a class of its own.
        representatives: one stage of each class; None as above.
    """

    count: int
    heads: NDArray[numpy.int64]
    starts: NDArray[numpy.int64]
    classes: NDArray[numpy.int32] | None = None
    representatives: Stages | None = None

    @classmethod
    def of(cls, count: int, larger: NDArray[numpy.int32], smaller: NDArray[numpy.int32]) -> Pairs:
        """The pairs in the order given, in which `larger` must ascend, each in a class of its own."""
        starts = numpy.flatnonzero(numpy.diff(larger, prepend=-1))
        return cls(larger, smaller, count, larger[starts].astype(numpy.int64), starts)

    @property
    def distinct(self) -> Stages:
        """One stage of each class."""
        return self if self.representatives is None else self.representatives

    def classified(self, codes: NDArray[numpy.int64]) -> Pairs:
        """The same, pairs of equal `codes` (0 or more, one per pair) in one class; unchanged where that saves little.

        Classes are in the order of their codes, and each is represented by its first pair.
        """
        if not len(self):
            return self
        _, first, classes = numpy.unique(codes, return_index=True, return_inverse=True)
        if len(first) * 2 > len(self):
            return self
        representatives = Stages(self.larger[first], self.smaller[first])
        return evolve(self, classes=classes.reshape(-1).astype(numpy.int32), representatives=representatives)

    def spread(self, values: NDArray[T], part: slice = slice(None)) -> NDArray[T]:
        """One of `values`, given per class, for each pair of `part`."""
        return values[part] if self.classes is None else values.take(self.classes[part], axis=0)

    def class_of(self, pair: int) -> int:
        """Where the values of one pair lie among those given per class."""
        return pair if self.classes is None else int(self.classes[pair])

    def only(self, mask: NDArray[numpy.bool_]) -> Pairs:
        """The pairs for which `mask` is true; all classes stay."""
        if mask.all():
            return self
        pairs = Pairs.of(self.count, self.larger[mask], self.smaller[mask])
        if self.classes is None:
            return pairs
        return evolve(pairs, classes=self.classes[mask], representatives=self.representatives)

    def of_few(self, stages: int) -> Pairs:
        """Those of plans of one stage, or of two at most."""
        first, last = self.larger == self.count - 1, self.smaller == 0
        return self.only(first & last if stages == 1 else first | last)

    def only_classes(self, mask: NDArray[numpy.bool_]) -> Pairs:
        """The pairs of the classes for which `mask` is true; the other classes go, and those left close up."""
        if self.classes is None or self.representatives is None:
            return self.only(mask)
        if mask.all():
            return self
        pairs = self.only(mask[self.classes])
        place = (numpy.cumsum(mask) - 1).astype(numpy.int32)
        left = Stages(self.representatives.larger[mask], self.representatives.smaller[mask])
        return evolve(pairs, classes=place[pairs.classes], representatives=left)

    @cached_property
    def band(self) -> Band | None:
        """The pairs by how far apart their downsets are; None where most places would hold none."""
        if not len(self) or (self.larger <= self.smaller).any():
            return None
        widest, heads = int((self.larger - self.smaller).max()), int(self.heads[-1] - self.heads[0]) + 1
        if widest * heads > SPARSEST * len(self):
            return None
        first = int(self.heads[0])
        row = (self.smaller - self.larger).astype(numpy.int64) + widest
        return Band(first, widest, heads, row * heads + (self.larger - first))

    def least(self, values: Array) -> Array:
        """For each downset the least of `values` over the pairs it is the larger of; infinite where there is none."""
        least = numpy.full(self.count, numpy.inf)
        if len(self.starts):
            least[self.heads] = numpy.minimum.reduceat(values, self.starts)
        return least

    def rows(self, first: int, last: int) -> Rows:
        """The pairs whose larger downset lies from `first` to `last`."""
        begin, end = (int(i) for i in numpy.searchsorted(self.heads, (first, last + 1)))
        if begin >= end:
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

    def place(self, larger: int, smaller: int) -> int:
        """Which of the pairs is that of these downsets."""
        row = self.of_downset(larger)
        return int(row.start) + int(self.smaller[row].searchsorted(smaller))


@frozen(eq=False, repr=False, slots=False)
class Band:
    """Pairs as a rectangle: a column for each larger downset, a row for how far below it the smaller one lies.

    What follows a stage is then no gather but a window on an array: 1,000 layers that all differ take a third of the
    time on 2**20 devices (2026-11-27).

    Attributes:
        first: the larger downset of the first column.
        widest: how many rows there are: the smaller downset of the first lies so far below, that of the last by 1.
        heads: how many columns.
        places: where each pair lies in the flat rectangle.
    """

    first: int
    widest: int
    heads: int
    places: NDArray[numpy.int64]

    @cached_property
    def _pairs(self) -> NDArray[numpy.int64]:
        """Which pair lies in each place of the flat rectangle."""
        pairs = numpy.full(self.widest * self.heads, -1)
        pairs[self.places] = numpy.arange(len(self.places))
        return pairs

    def pair(self, larger: int, smaller: int) -> int:
        """Which of the pairs is that of these downsets."""
        return int(self._pairs[(smaller - larger + self.widest) * self.heads + larger - self.first])

    def filled(self, values: Array) -> Array:
        """The rectangle of `values`, one for each pair; infinite where there is none. Shape `(widest, heads)`."""
        cells = numpy.full(self.widest * self.heads, numpy.inf)
        cells[self.places] = values
        return cells.reshape(self.widest, self.heads)

    def padded(self, values: Array) -> Array:
        """`values`, one for each downset, behind as many that are infinite as the rectangle has rows."""
        return numpy.concatenate([numpy.full(self.widest, numpy.inf), values])

    def columns(self, cells: Array, first: int, last: int) -> Array:
        """The columns of the larger downsets from `first` to `last`."""
        return cells[:, first - self.first : last + 1 - self.first]

    def below(self, padded: Array, first: int, last: int) -> Array:
        """What `padded` says of the smaller downsets of these columns: a view of the same shape."""
        step = padded.itemsize
        return numpy.ndarray((self.widest, last + 1 - first), padded.dtype, padded, first * step, (step, step))


@frozen(eq=False, repr=False)
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

    def lower(self, least: Array, values: Array) -> None:
        """Lower `least`, one number per downset, to the least of `values` (one per pair) in each row."""
        if len(self.starts):
            least[self.heads] = numpy.minimum(least[self.heads], numpy.minimum.reduceat(values, self.starts))


def units_of_layers(instance: Instance) -> NDArray[numpy.int64]:
    """The block of each layer (`Space.units`), by number; -1 where it is in none. Shape `(layers,)`."""
    unit_of = numpy.full(len(instance.graph.layers), -1)
    for number, unit in enumerate(instance.space.units):
        unit_of[list(unit)] = number
    return unit_of


def layer_classes(instance: Instance) -> list[int]:
    """A number for each layer, from 0 in order of first appearance, equal where no candidate differs between them."""
    first = numpy.zeros(len(instance.graph.layers), dtype=numpy.int64)
    for candidate in instance.candidates:
        figures = _layer_costs(candidate)
        # Most candidates tell no layers apart that one before them did not.
        if (figures != figures[:, first]).any():
            known: dict[Hashable, int] = {}
            keys = zip(first.tolist(), map(bytes, numpy.ascontiguousarray(figures.T)), strict=True)
            first = numpy.array([known.setdefault(key, layer) for layer, key in enumerate(keys)])
    return numbered(first.tolist())


def _layer_costs(candidate: Candidate) -> Array:
    """All that a candidate says of layers, shape `(figures, layers)`."""
    rows: list[Array] = [candidate.forward, candidate.backward]
    rows += [] if candidate.weight_gradients is None else [candidate.weight_gradients]
    for mode in candidate.recompute:
        rows += [mode.extra, mode.first, mode.more, mode.peak]
    for busy in (candidate.busy, *(mode.busy for mode in candidate.recompute)):
        rows += [] if busy is None else list(busy)
    for group in candidate.state:
        rows += [group.weights, group.gradients, group.optimizer, group.update]
        rows += [] if group.pieces is None else [group.pieces]
    return numpy.array(rows)


def numbered(values: Sequence[Hashable]) -> list[int]:
    """Numbers from 0 in order of first appearance, equal where values are."""
    known: dict[Hashable, int] = {}
    return [known.setdefault(value, len(known)) for value in values]
