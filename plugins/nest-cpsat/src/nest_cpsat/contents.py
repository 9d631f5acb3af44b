"""Contents of stages of several chunks, whatever the chunks (PROBLEM.md section 4).

Most costs of a stage depend on its content: the number of its units of each class. Units of a class are equal in all
numbers of the candidate.
"""

from __future__ import annotations

import functools
from itertools import combinations_with_replacement, product
from math import inf, prod
from typing import TYPE_CHECKING, Any

import numpy
from attrs import evolve, frozen

from nest.instance import Candidate, Instance, partial
from nest_cpsat.cuts import Booleans, Floats, Integers, Units
from nest_cpsat.placement import TooManyChoicesError
from nest_cpsat.stages import Parts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MOST_CONTENTS = 20_000
"""Most contents of a stage that are enumerated; 32 equal blocks with embedding and head make 132."""

MOST_STATES = 1_500  # Most states (contents of all stages so far) for which a bound over paths is computed.


@frozen(eq=False)
class Contents:
    """Possible contents of a stage, by classes of units."""

    layers: tuple[tuple[int, ...], ...]  # By unit.
    unit_class: Integers  # Class of each unit. Shape `(units,)`.
    totals: Integers  # Units of each class. Shape `(classes,)`.
    counts: Integers  # Units of each class in a content. Shape `(contents, classes)`.
    parts: Parts  # Costs of stages of each content, without their inputs.
    border_bytes: Floats  # Bytes that cross the border before each unit; 0 for the first. Shape `(units,)`.
    # By recompute mode, or pair of modes (`pair_of`), bytes of each unit's further micro-batches in flight, by number
    # of its first blocks. Shape `(units, most + 1)`.
    unit_more: dict[str, Floats]
    unit_extra: dict[str, Floats]  # Same for seconds of recomputation.
    # Content of a stage between two states, or the number of contents if there is none. A state counts the units of
    # each class in the stages so far; the first is empty, the last has all. None: too many states. Shape `(states,
    # states)`.
    between: Integers | None
    blocks: UnitBlocks  # Candidates for first blocks.
    # By content and class, units with at least 1, 2, ... first blocks. Shape `(contents, classes, most)`.
    first: Integers
    same: Integers  # Index of each content regardless of first blocks, as in `between`. Shape `(contents,)`.

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
        """Enumerate contents of stages of so many chunks; with few classes, of any stages.

        Raises:
            TooManyChoicesError: too many contents.
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
        """Expand contents by the number of first blocks of their chunks.

        Args:
            pairs: recompute modes of first and other blocks (`pair_of`).
            possible: mask of contents by stage. Shape `(stages, contents)`.

        Raises:
            TooManyChoicesError: too many contents.
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
    """Blocks that may be among the first, which alone are recomputed."""

    # Unit of each block and its position in the unit; empty if no stage recomputes parts.
    places: tuple[tuple[int, int], ...]
    rank: Integers  # Position in the unit by layer; past the last for layers outside blocks. Shape `(layers,)`.

    @classmethod
    def of(cls, instance: Instance, units: Units) -> UnitBlocks:
        """Find the blocks of units.

        Raises:
            TooManyChoicesError: a block spans several units.
        """
        space, home = instance.space, units.home(len(instance.graph.layers))
        places, rank = list[tuple[int, int]](), numpy.full(len(home), len(space.units))
        for block in space.units if space.partial else ():
            unit, *others = {int(home[layer]) for layer in block}
            if others:
                raise TooManyChoicesError("chunks may split the blocks that stages recompute")
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
    """Combine layer values by unit and number of first blocks. Shape `(units, most + 1)`.

    `values` has the values of layers in first blocks, then in others.
    """
    first, rest = values
    each = [numpy.where(rank < count, first, rest) for count in range(most + 1)]
    return numpy.array([[float(join(row[list(own)])) for row in each] for own in layers])


def _between(totals: Integers) -> Integers | None:
    """Compute `Contents.between`; contents except the first follow the order of states."""
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
    """Class of each unit; `rank` as in `UnitBlocks`."""
    rows = [numpy.atleast_2d(array) for name, array in candidate.arrays() if name != "tensor_bytes"]
    found = candidate.finding_weight_gradients
    rows += [numpy.atleast_2d(each) for each in (found, candidate.busy) if each is not None]
    rows += [numpy.atleast_2d(rank)]
    rows += [mode.busy for mode in candidate.recompute if mode.busy is not None]
    every = numpy.concatenate(rows)
    known: dict[bytes, int] = {}
    return numpy.array([known.setdefault(every[:, list(layers)].tobytes(), len(known)) for layers in units.layers])


def few_classes(unit_class: Integers) -> bool:
    """True if every combination of counts is listed, so that contents fit stages of any number."""
    return bool(numpy.prod(numpy.bincount(unit_class) + 1.0) <= MOST_CONTENTS)


def _counts(unit_class: Integers, chunks: int, longest: int) -> Integers:
    """Possible counts of units of each class in a stage of so many runs of at most `longest` units, in fixed order.

    Raises:
        TooManyChoicesError: too many.
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
    """Bytes across the border before each unit (`cut(D)` of PROBLEM.md section 4)."""
    home, total = units.home(len(instance.graph.layers)), numpy.zeros(len(units.layers))
    for (producer, consumers), size in zip(instance.graph.tensors, candidate.tensor_bytes, strict=True):
        # Made in one unit and read in later ones, a tensor crosses every border between.
        last = max((int(home[consumer]) for consumer in consumers), default=-1)
        total[int(home[producer]) + 1 : last + 1] += size
    return total
