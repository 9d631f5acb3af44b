"""Stages that recompute only their first blocks, or those of each chunk (PROBLEM.md section 3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy
from attrs import frozen

from nest.instance import Candidate, partial
from nest_cpsat.cuts import Booleans, Floats, Integers


def pair_of(name: str) -> str:
    """Common part of names of partial recomputation that differ only in the number of blocks.

    >>> pair_of("full:5:none"), pair_of("full")
    ('full:0:none', 'full')
    """
    part = partial(name)
    return name if part is None else part._replace(layers=0).name


def pairs_of(names: Iterable[str]) -> tuple[str, ...]:
    """Distinct `pair_of` of all names; their least costs by layer are equal (`Candidate.mode`)."""
    return tuple(dict.fromkeys(map(pair_of, names)))


def rivals(modes: Sequence[tuple[str, int]], row: int, rows: Sequence[int]) -> list[int]:
    """Rows among `rows` that may dominate a row; for the many partial modes, the likely ones."""
    (recompute, zero), kept = modes[row], []
    part = partial(recompute)
    fewer = None if part is None else part._replace(layers=part.layers - 1).name
    for other in rows:
        name, its_zero = modes[other]
        whole = partial(name) is None or (part is None and its_zero == zero)
        if other != row and (whole or name == recompute or (name, its_zero) == (fewer, zero)):
            kept.append(other)
    return kept


@frozen(eq=False)
class FirstBlocks:
    """First blocks of stages that hold one run of layers each."""

    # Position of a layer's block in the stage; past the last for layers outside blocks; -1 for layers outside the
    # stage. Shape `(stages, layers)`.
    place: Integers
    count: int  # Number of blocks.

    @classmethod
    def of(cls, units: Sequence[tuple[int, ...]], stage_layers: Booleans) -> FirstBlocks:
        """Find the blocks of stages of these layers."""
        place = numpy.where(stage_layers, len(units), -1)
        ahead = numpy.zeros(len(stage_layers), dtype=numpy.int64)
        for unit in map(list, units):
            held = stage_layers[:, unit]
            place[:, unit] = numpy.where(held, ahead[:, None], -1)
            ahead += held.any(axis=1)
        return cls(place, len(units))

    def joined(self, join: numpy.ufunc, first: Floats, rest: Floats) -> Floats:
        """Combine layer values by number of first blocks, from 0. Shape `(blocks + 1, stages)`.

        Args:
            join: combines values; 0 is neutral.
            first: values of layers in first blocks.
            rest: values of the others.
        """
        ahead, behind = numpy.zeros((2, self.count + 2, len(self.place)))
        for table, values, step in ((ahead, first, 1), (behind, rest, 0)):
            for layer in numpy.flatnonzero(values).tolist():
                stages = numpy.flatnonzero(self.place[:, layer] >= 0)
                where = self.place[stages, layer] + step, stages
                table[where] = join(table[where], values[layer])
        joined: Floats = join(join.accumulate(ahead), join.accumulate(behind[::-1])[::-1])
        return joined[:-1]

    def tables(self, candidate: Candidate, pair: str, entering: Floats) -> dict[str, Floats]:
        """`stages.Parts.recompute` for two modes, by number of first blocks. Shape `(blocks + 1, stages)`.

        Also `least` and `least_busy`, the least `extra` and `busy` with at least so many blocks, and `most`, the
        largest `extra` of any (one row). `entering` are the bytes that enter each stage.
        """
        part = partial(pair)
        assert part is not None
        mode, rest = candidate.mode(part.mode), candidate.mode(part.rest)
        layers = len(mode.extra)
        rows = [
            [each.extra, each.first, each.more, each.peak, numpy.full(layers, float(each.stash_inputs))]
            for each in (mode, rest)
        ]
        joins = (numpy.add, numpy.add, numpy.add, numpy.maximum, numpy.maximum)
        extra, first, more, peak, stashes = (
            self.joined(join, one, other) for join, one, other in zip(joins, *rows, strict=True)
        )
        levels = max(0 if each.busy is None else len(each.busy) for each in (mode, rest))
        none = numpy.zeros((levels, layers))
        every = zip(*(none if each.busy is None else each.busy for each in (mode, rest)), strict=True)
        busy = numpy.array([self.joined(numpy.add, *each) for each in every]).reshape(levels, *extra.shape)
        least, least_busy = (
            numpy.flip(numpy.minimum.accumulate(numpy.flip(each, -2), axis=-2), -2) for each in (extra, busy)
        )
        found = {"extra": extra, "one": first + peak, "more": more + stashes * entering, "stashes": stashes}
        return found | {"busy": busy, "least": least, "least_busy": least_busy, "most": extra.max(axis=0)}


def of_part(tables: Mapping[str, Floats], name: str) -> dict[str, Floats]:
    """Select the row of a partial mode from the tables of its pair."""
    part = partial(name)
    assert part is not None
    return {of: tables[of][..., part.layers, :] for of in ("extra", "one", "more", "stashes", "busy")}


def fewest(tables: Mapping[str, Floats], names: Sequence[str], further: float, room: Floats) -> dict[str, Floats]:
    """Select the fewest first blocks that fit in `room` (bytes by stage): a lower bound for any that fit.

    `further` counts micro-batches in flight after the first.
    """
    counts = numpy.array(sorted(part.layers for part in map(partial, names) if part is not None))
    rows = slice(counts[0], counts[-1] + 1) if len(counts) == counts[-1] - counts[0] + 1 else counts
    needed = tables["one"][rows] + further * tables["more"][rows]
    first, stages = counts[(needed <= room).argmax(axis=0)], numpy.arange(len(room))
    found = {of: tables[of][first, stages] for of in ("one", "more")}
    return found | {
        "extra": tables["least"][first, stages],
        "busy": tables["least_busy"][:, first, stages],
        "most": tables["most"],
    }
