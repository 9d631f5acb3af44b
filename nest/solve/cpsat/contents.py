"""What stages of several chunks can hold, whatever the chunks (PROBLEM.md section 4).

Most of a stage's cost depends on how many units of each class it holds: units are of one class where all that a
candidate says of their layers is equal. Such counts are a stage's content.
"""

from __future__ import annotations

import functools
from itertools import combinations_with_replacement, product
from math import inf, prod
from typing import TYPE_CHECKING, Any

import numpy
from attrs import evolve, frozen

from nest.instance import Candidate, Instance, partial
from nest.solve.cpsat.cuts import Booleans, Floats, Integers, Units
from nest.solve.cpsat.placement import TooManyChoicesError
from nest.solve.cpsat.stages import Parts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
        unit_more: by recompute mode, or pair of them (`pair_of`), bytes of each unit's further micro-batches in flight,
            by how many of its blocks are first. Shape `(units, most + 1)`.
        unit_extra: the same of seconds that it recomputes.
        between: by two states, the content that a stage between them has, or the number of contents where it has none.
            A state says how many units of each class the stages so far hold. The first has none, the last all. None:
            there are too many. Shape `(states, states)`.
        blocks: of which stages may recompute the first.
        first: of each content, of how many units of each class so many blocks or more are among the first of their
            chunk, from 1. Shape `(contents, classes, most)`.
        same: of each content which one it is, whichever blocks are first: what `between` says. Shape `(contents,)`.
    """

    layers: tuple[tuple[int, ...], ...]
    unit_class: Integers
    totals: Integers
    counts: Integers
    parts: Parts
    border_bytes: Floats
    unit_more: dict[str, Floats]
    unit_extra: dict[str, Floats]
    between: Integers | None
    blocks: UnitBlocks
    first: Integers
    same: Integers

    @classmethod
    def of(
        cls,
        instance: Instance,
        candidate: Candidate,
        units: Units,
        blocks: UnitBlocks,
        classes: Integers,
        stages: int,
        chunks: int,
    ) -> Contents:
        """The contents of stages of so many chunks; where classes are few, of any stages.

        Args:
            instance: the problem.
            candidate: of all stages.
            units: what chunks are runs of.
            blocks: of the units.
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

        more, extra = (
            {
                mode.name: _by_first(units.layers, blocks.rank, [getattr(mode, of)] * 2, 0)
                for mode in candidate.recompute
            }
            for of in ("more", "extra")
        )
        parts = Parts.of(candidate, sums, largest, numpy.zeros(len(counts)), numpy.zeros(1))
        borders = _border_bytes(instance, candidate, units)
        nothing, each = numpy.zeros((len(counts), len(totals), 0), dtype=numpy.int64), numpy.arange(len(counts))
        return cls(
            units.layers, classes, totals, counts, parts, borders, more, extra, _between(totals), blocks, nothing, each
        )

    def with_parts(self, candidate: Candidate, pairs: Sequence[str], possible: Booleans) -> Contents:
        """Some of the contents, each with every number of blocks that are among the first of their chunk.

        Args:
            candidate: of all stages.
            pairs: of recompute modes, that of the first blocks and that of the others (`pair_of`).
            possible: which of the contents each stage can have. Shape `(stages, contents)`.

        Raises:
            TooManyChoicesError: there are too many.
        """
        example = [int((self.unit_class == each).argmax()) for each in range(len(self.totals))]
        own = [sum(unit == each for unit, _ in self.blocks.places) for each in example]
        most, found = max(own), []
        for content in numpy.flatnonzero(possible.any(axis=0)).tolist():
            held = zip(self.counts[content].tolist(), own, strict=True)
            every = [combinations_with_replacement(range(count, -1, -1), blocks) for count, blocks in held]
            found += [(content, [(*row, *[0] * (most - len(row))) for row in rows]) for rows in product(*every)]
            if len(found) > MOST_CONTENTS:
                raise TooManyChoicesError(f"stages of several chunks can hold more than {MOST_CONTENTS} sets of blocks")
        same = numpy.array([content for content, _ in found], dtype=numpy.int64)
        first = numpy.array([rows for _, rows in found], dtype=numpy.int64).reshape(len(found), len(own), most)
        at_least = numpy.concatenate([self.counts[same][:, :, None], first], axis=2)
        exactly = at_least - numpy.concatenate([first, numpy.zeros((len(found), len(own), 1), numpy.int64)], axis=2)

        def sums(table: Floats) -> Floats:
            endless = numpy.isinf(table[example])
            total: Floats = (exactly * numpy.where(endless, 0.0, table[example])).sum(axis=(1, 2))
            total[((exactly > 0) & endless).any(axis=(1, 2))] = inf
            return total

        def largest(table: Floats) -> Floats:
            most_of: Floats = numpy.where(exactly > 0, table[example], 0.0).max(axis=(1, 2))
            return most_of

        def of_whole(values: dict[str, Floats]) -> dict[str, Floats]:
            return {name: each[..., same] if each.size else each for name, each in values.items()}

        recompute = {name: of_whole(each) for name, each in self.parts.recompute.items()}
        unit_more, unit_extra = dict(self.unit_more), dict(self.unit_extra)
        for pair in pairs:
            part = partial(pair)
            assert part is not None
            modes = candidate.mode(part.mode), candidate.mode(part.rest)
            by_first = functools.partial(_by_first, self.layers, self.blocks.rank, most=most)
            unit_more[pair], unit_extra[pair] = (
                by_first([getattr(mode, of) for mode in modes]) for of in ("more", "extra")
            )
            stashes = by_first(
                [numpy.full(len(mode.extra), float(mode.stash_inputs)) for mode in modes], join=numpy.max
            )
            levels = max(0 if mode.busy is None else len(mode.busy) for mode in modes)
            none = numpy.zeros((levels, len(modes[0].extra)))
            busy = zip(*(none if mode.busy is None else mode.busy for mode in modes), strict=True)
            recompute[pair] = {
                "extra": sums(unit_extra[pair]),
                "one": sums(by_first([mode.first for mode in modes]))
                + largest(by_first([mode.peak for mode in modes], join=numpy.max)),
                "more": sums(unit_more[pair]),
                "stashes": largest(stashes),
                "busy": numpy.array([sums(by_first(row)) for row in busy]),
            }
        parts = evolve(
            self.parts,
            compute=self.parts.compute[same],
            forward=self.parts.forward[same],
            weight_gradients=self.parts.weight_gradients[same],
            busy=of_whole({"busy": self.parts.busy})["busy"],
            state=tuple(map(of_whole, self.parts.state)),
            recompute=recompute,
        )
        counts = self.counts[same]
        return evolve(
            self, counts=counts, parts=parts, unit_more=unit_more, unit_extra=unit_extra, first=first, same=same
        )


@frozen(eq=False)
class UnitBlocks:
    """The blocks of which stages may recompute the first.

    Attributes:
        places: of each, its unit and how many of that unit's lie in front of it; none where no stage recomputes parts.
        rank: for each layer the second of these; behind all for a layer in no block. Shape `(layers,)`.
    """

    places: tuple[tuple[int, int], ...]
    rank: Integers

    @classmethod
    def of(cls, instance: Instance, units: Units) -> UnitBlocks:
        """The blocks of units.

        Raises:
            TooManyChoicesError: a block is of several units.
        """
        space, home = instance.space, units.home(len(instance.graph.layers))
        places, rank = list[tuple[int, int]](), numpy.full(len(home), len(space.units))
        for block in space.units if space.partial else ():
            unit, *others = {int(home[layer]) for layer in block}
            if others:
                raise TooManyChoicesError("chunks may part blocks of which stages recompute the first")
            rank[list(block)] = sum(each == unit for each, _ in places)
            places.append((unit, int(rank[block[0]])))
        return cls(tuple(places), rank)


def _by_first(
    layers: Sequence[tuple[int, ...]],
    rank: Integers,
    values: Sequence[Floats],
    most: int,
    join: Callable[[Floats], Any] = numpy.sum,
) -> Floats:
    """What the layers of units come to, by how many of their blocks are first. Shape `(units, most + 1)`.

    Args:
        layers: of each unit.
        rank: of `UnitBlocks`.
        values: of each layer in a first block, then of each other.
        most: blocks of a unit.
        join: how values of layers come together.
    """
    first, rest = values
    each = [numpy.where(rank < count, first, rest) for count in range(most + 1)]
    return numpy.array([[float(join(row[list(own)])) for row in each] for own in layers])


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


def unit_classes(candidate: Candidate, units: Units, rank: Integers) -> Integers:
    """The class of each unit; `rank` says of each layer how many blocks lie in front of its own in its unit."""
    rows = [numpy.atleast_2d(array) for name, array in candidate.arrays() if name != "tensor_bytes"]
    found = candidate.finding_weight_gradients
    rows += [numpy.atleast_2d(each) for each in (found, candidate.busy) if each is not None]
    rows += [numpy.atleast_2d(rank)]
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
