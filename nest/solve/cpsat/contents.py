"""What stages of several chunks can hold, whatever the chunks (PROBLEM.md section 4).

Most of a stage's cost depends on how many units of each class it holds: units are of one class where all that a
candidate says of their layers is equal. Such counts are a stage's content.
"""

from __future__ import annotations

from itertools import product
from math import inf, prod

import numpy
from attrs import frozen

from nest.instance import Candidate, Instance
from nest.solve.cpsat.cuts import Floats, Integers, Units
from nest.solve.cpsat.path_model import TooManyChoicesError
from nest.solve.cpsat.stages import Parts

MOST_CONTENTS = 20_000
"""Contents of a stage up to which they are listed: 32 blocks that are alike, with embedding and head, make 132."""

MOST_STATES = 1_500
"""Contents of all stages up to one, up to which a bound runs through them."""


@frozen(eq=False)
class Contents:
    """What a stage can hold, by classes of units.

    Attributes:
        layers: of each unit that chunks are runs of.
        unit_class: the class of each unit. Shape `(units,)`.
        totals: units of each class. Shape `(classes,)`.
        counts: how many of each class a content has. Shape `(contents, classes)`.
        parts: what stages of each content are made of, their inputs aside.
        border_bytes: bytes that cross the border in front of each unit; none in front of the first. Shape `(units,)`.
        unit_more: by recompute mode, bytes of each unit's further micro-batches in flight. Shape `(units,)`.
        between: by two states, the content that a stage between them has, or the number of contents where it has none.
            A state says how many units of each class the stages so far hold. The first has none, the last all. None:
            there are too many. Shape `(states, states)`.
    """

    layers: tuple[tuple[int, ...], ...]
    unit_class: Integers
    totals: Integers
    counts: Integers
    parts: Parts
    border_bytes: Floats
    unit_more: dict[str, Floats]
    between: Integers | None

    @classmethod
    def of(
        cls, instance: Instance, candidate: Candidate, units: Units, classes: Integers, stages: int, chunks: int
    ) -> Contents:
        """The contents of stages of so many chunks; where classes are few, of any stages.

        Args:
            instance: the problem.
            candidate: of all stages.
            units: what chunks are runs of.
            classes: of each unit.
            stages: how many.
            chunks: of each.

        Raises:
            TooManyChoicesError: there are too many.
        """
        totals = numpy.bincount(classes)
        if few_classes(classes):
            shape = tuple((totals + 1).tolist())
            counts = numpy.array(list(product(*map(range, shape)))[1:], dtype=numpy.int64)
        else:
            counts = _counts(classes, chunks, len(units.layers) - (stages - 1) * chunks)
        examples = [list(units.layers[int((classes == each).argmax())]) for each in range(len(totals))]

        def sums(values: Floats) -> Floats:
            own = numpy.array([float(values[layers].sum()) for layers in examples])
            endless = numpy.isinf(own)
            total: Floats = counts.astype(numpy.float64) @ numpy.where(endless, 0.0, own)
            total[counts[:, endless].any(axis=1)] = inf
            return total

        def largest(values: Floats) -> Floats:
            own = numpy.array([float(values[layers].max()) for layers in examples])
            most: Floats = numpy.where(counts > 0, own[None, :], 0.0).max(axis=1)
            return most

        more = {
            mode.name: numpy.array([float(mode.more[list(layers)].sum()) for layers in units.layers])
            for mode in candidate.recompute
        }
        parts = Parts.of(candidate, sums, largest, numpy.zeros(len(counts)), numpy.zeros(1))
        borders = _border_bytes(instance, candidate, units)
        return cls(units.layers, classes, totals, counts, parts, borders, more, _between(totals))


def _between(totals: Integers) -> Integers | None:
    """`Contents.between` of units of so many classes; contents are listed in the order of states, but for the first."""
    shape = tuple((totals + 1).tolist())
    if prod(shape) > MOST_STATES:
        return None
    states = numpy.array(list(product(*map(range, shape))), dtype=numpy.int64)
    ahead = numpy.ones((len(states), len(states)), dtype=bool)
    for held in states.T:
        ahead &= held[:, None] <= held[None, :]
    # Counting on from a state is the same wherever it begins.
    number = numpy.arange(len(states))
    content: Integers = numpy.where(ahead, number[None, :] - number[:, None] - 1, len(states) - 1)
    content[number, number] = len(states) - 1
    return content


def unit_classes(candidate: Candidate, units: Units) -> Integers:
    """The class of each unit."""
    rows = [numpy.atleast_2d(array) for name, array in candidate.arrays() if name != "tensor_bytes"]
    found = candidate.finding_weight_gradients
    rows += [numpy.atleast_2d(each) for each in (found, candidate.busy) if each is not None]
    rows += [mode.busy for mode in candidate.recompute if mode.busy is not None]
    every = numpy.concatenate(rows)
    known: dict[bytes, int] = {}
    return numpy.array([known.setdefault(every[:, list(layers)].tobytes(), len(known)) for layers in units.layers])


def few_classes(unit_class: Integers) -> bool:
    """Whether every number of units of each class is listed, so that contents are those of any stages."""
    return bool(numpy.prod(numpy.bincount(unit_class) + 1.0) <= MOST_CONTENTS)


def _counts(unit_class: Integers, chunks: int, longest: int) -> Integers:
    """How many units of each class a stage of so many runs can hold, `longest` at most, in a fixed order.

    Raises:
        TooManyChoicesError: they are too many.
    """
    classes = int(unit_class.max()) + 1
    reached = {(0, (0,) * classes)}
    for _ in range(chunks):
        following: set[tuple[int, tuple[int, ...]]] = set()
        for end, counts in reached:
            for first in range(end, len(unit_class)):
                grown = list(counts)
                for last in range(first, len(unit_class)):
                    grown[unit_class[last]] += 1
                    following.add((last + 1, tuple(grown)))
            if len(following) > MOST_CONTENTS:
                raise TooManyChoicesError(f"stages of several chunks can hold more than {MOST_CONTENTS} sets of blocks")
        reached = following
    found = sorted({counts for _, counts in reached if sum(counts) <= longest})
    return numpy.array(found, dtype=numpy.int64).reshape(-1, classes)


def _border_bytes(instance: Instance, candidate: Candidate, units: Units) -> Floats:
    """Bytes that cross the border in front of each unit (`cut(D)` of PROBLEM.md section 4)."""
    home, total = units.home(len(instance.graph.layers)), numpy.zeros(len(units.layers))
    for (producer, consumers), size in zip(instance.graph.tensors, candidate.tensor_bytes, strict=True):
        # Made in one unit and read in later ones, a tensor crosses every border between.
        last = max((int(home[consumer]) for consumer in consumers), default=-1)
        total[int(home[producer]) + 1 : last + 1] += size
    return total
