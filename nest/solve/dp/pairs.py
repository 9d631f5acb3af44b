"""Pairs of nested downsets: all possible stages, in rows by larger downset."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import TypeVar

import numpy
from attrs import evolve, frozen
from numpy.typing import NDArray

from nest.instance import Array, Candidate, Instance

T = TypeVar("T", bound=numpy.generic)

SPARSEST = 4  # Most cells of a band for each pair.


def distinct(numbers: NDArray[T]) -> NDArray[T]:
    """Distinct numbers, ascending: `numpy.unique` loads masked arrays, a fiftieth of a small solve."""
    ordered: NDArray[T] = numpy.sort(numbers, axis=None)
    first: NDArray[numpy.bool_] = numpy.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    return ordered[first]


@frozen(eq=False, repr=False, slots=False)
class Stages:
    """Stages: layers of a larger downset outside a smaller one, by index."""

    larger: NDArray[numpy.int32]
    smaller: NDArray[numpy.int32]

    def __len__(self) -> int:
        return len(self.larger)


@frozen(eq=False, repr=False, slots=False)
class Pairs(Stages):
    """All stages of a lattice of downsets, by ascending larger downset.

    Stages with equal costs are in one equivalence class; costs are kept once per class.
    """

    count: int  # Number of downsets.
    heads: NDArray[numpy.int64]  # Larger downsets, ascending.
    starts: NDArray[numpy.int64]  # First pair of each of `heads`.
    classes: NDArray[numpy.int32] | None = None  # Class of each pair; None: each pair is its own class.
    representatives: Stages | None = None  # One stage of each class; None as above.

    @classmethod
    def of(cls, count: int, larger: NDArray[numpy.int32], smaller: NDArray[numpy.int32]) -> Pairs:
        """Pairs in the given order, in which `larger` must ascend, each its own class."""
        starts = numpy.flatnonzero(numpy.diff(larger, prepend=-1))
        return cls(larger, smaller, count, larger[starts].astype(numpy.int64), starts)

    @property
    def distinct(self) -> Stages:
        """One stage of each class."""
        return self if self.representatives is None else self.representatives

    def classified(self, codes: NDArray[numpy.int64]) -> Pairs:
        """Classify pairs by `codes` (0 or more, one per pair); unchanged if that saves little.

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
        """Spread `values` per class to the pairs of `part`."""
        return values[part] if self.classes is None else values.take(self.classes[part], axis=0)

    def class_of(self, pair: int) -> int:
        """Class of one pair."""
        return pair if self.classes is None else int(self.classes[pair])

    def only(self, mask: NDArray[numpy.bool_]) -> Pairs:
        """Pairs selected by `mask`; all classes stay."""
        if mask.all():
            return self
        pairs = Pairs.of(self.count, self.larger[mask], self.smaller[mask])
        if self.classes is None:
            return pairs
        return evolve(pairs, classes=self.classes[mask], representatives=self.representatives)

    def of_few(self, stages: int) -> Pairs:
        """Pairs of plans of one stage, or of at most two."""
        first, last = self.larger == self.count - 1, self.smaller == 0
        return self.only(first & last if stages == 1 else first | last)

    def only_classes(self, mask: NDArray[numpy.bool_]) -> Pairs:
        """Pairs of the classes selected by `mask`; other classes are removed."""
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
        """Pairs by distance of their downsets; None: most places would be empty."""
        if not len(self) or (self.larger <= self.smaller).any():
            return None
        widest, heads = int((self.larger - self.smaller).max()), int(self.heads[-1] - self.heads[0]) + 1
        if widest * heads > SPARSEST * len(self):
            return None
        first = int(self.heads[0])
        row = (self.smaller - self.larger).astype(numpy.int64) + widest
        return Band(first, widest, heads, row * heads + (self.larger - first))

    def least(self, values: Array) -> Array:
        """Least of `values` over the pairs of each larger downset; infinite if there is none."""
        least = numpy.full(self.count, numpy.inf)
        if len(self.starts):
            least[self.heads] = numpy.minimum.reduceat(values, self.starts)
        return least

    def rows(self, first: int, last: int) -> Rows:
        """Pairs with larger downsets from `first` to `last`."""
        begin, end = (int(i) for i in numpy.searchsorted(self.heads, (first, last + 1)))
        if begin >= end:
            return Rows(slice(0, 0), self.heads[:0], self.starts[:0])
        start = int(self.starts[begin])
        stop = int(self.starts[end]) if end < len(self.starts) else len(self.larger)
        return Rows(slice(start, stop), self.heads[begin:end], self.starts[begin:end] - start)

    def of_downset(self, index: int) -> slice:
        """Pairs of larger downset `index`."""
        place = int(numpy.searchsorted(self.heads, index))
        if place == len(self.heads) or self.heads[place] != index:
            return slice(0, 0)
        end = int(self.starts[place + 1]) if place + 1 < len(self.starts) else len(self.larger)
        return slice(int(self.starts[place]), end)

    def place(self, larger: int, smaller: int) -> int:
        """Index of the pair of these downsets."""
        row = self.of_downset(larger)
        return int(row.start) + int(self.smaller[row].searchsorted(smaller))


@frozen(eq=False, repr=False, slots=False)
class Band:
    """Pairs as a rectangle: a column for each larger downset, a row for the distance to the smaller one.

    Stages then need no gather but a window on an array: 1,000 different layers take a third of the time on 2**20
    devices (2026-11-27).
    """

    first: int  # Larger downset of the first column.
    widest: int  # Number of rows: the first has this distance, the last distance 1.
    heads: int  # Number of columns.
    places: NDArray[numpy.int64]  # Index of each pair in the flat rectangle.

    @cached_property
    def _pairs(self) -> NDArray[numpy.int64]:
        pairs = numpy.full(self.widest * self.heads, -1)
        pairs[self.places] = numpy.arange(len(self.places))
        return pairs

    def pair(self, larger: int, smaller: int) -> int:
        """Index of the pair of these downsets."""
        return int(self._pairs[(smaller - larger + self.widest) * self.heads + larger - self.first])

    def filled(self, values: Array) -> Array:
        """Rectangle of `values` by pair; infinite where there is none. Shape `(widest, heads)`."""
        cells = numpy.full(self.widest * self.heads, numpy.inf)
        cells[self.places] = values
        return cells.reshape(self.widest, self.heads)

    def padded(self, values: Array) -> Array:
        """`values` by downset, after as many infinite ones as the rectangle has rows."""
        return numpy.concatenate([numpy.full(self.widest, numpy.inf), values])

    def columns(self, cells: Array, first: int, last: int) -> Array:
        """Columns of the larger downsets from `first` to `last`."""
        return cells[:, first - self.first : last + 1 - self.first]

    def below(self, padded: Array, first: int, last: int) -> Array:
        """Values of `padded` at the smaller downsets of these columns: a view of the same shape."""
        step = padded.itemsize
        return numpy.ndarray((self.widest, last + 1 - first), padded.dtype, padded, first * step, (step, step))


@frozen(eq=False, repr=False)
class Rows:
    """Consecutive pairs in whole rows of one larger downset each."""

    pairs: slice  # Their slice.
    heads: NDArray[numpy.int64]  # Larger downset of each row.
    starts: NDArray[numpy.int64]  # Start of each row among these pairs.

    def __len__(self) -> int:
        return int(self.pairs.stop - self.pairs.start)

    def lower(self, least: Array, values: Array) -> None:
        """Lower `least`, by downset, to the least of `values` (by pair) in each row."""
        if len(self.starts):
            least[self.heads] = numpy.minimum(least[self.heads], numpy.minimum.reduceat(values, self.starts))


def units_of_layers(instance: Instance) -> NDArray[numpy.int64]:
    """Block of each layer (`Space.units`), by number; -1: none. Shape `(layers,)`."""
    unit_of = numpy.full(len(instance.graph.layers), -1)
    for number, unit in enumerate(instance.space.units):
        unit_of[list(unit)] = number
    return unit_of


def layer_classes(instance: Instance) -> list[int]:
    """Class of each layer, from 0 in order of first appearance; no candidate distinguishes layers of a class."""
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
    """All numbers of a candidate by layer, shape `(figures, layers)`."""
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
    """Number distinct values from 0 in order of first appearance."""
    known: dict[Hashable, int] = {}
    return [known.setdefault(value, len(known)) for value in values]
