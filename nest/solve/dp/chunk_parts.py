"""Stages of several chunks that recompute the first blocks of each chunk (PROBLEM.md section 3).

The times of such a stage depend on the contents of each chunk. Placements of units in chunks are distinguished only by
the recomputed layers: inner chunks have about equal size, so most stages have a single such layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy
from attrs import evolve, frozen
from numpy.typing import NDArray

from nest.instance import Array, Candidate, RecomputeMode
from nest.solve.dp.choices import ChoiceTable, Parts, Ports
from nest.solve.dp.chunk_memory import Counts, Held, Share
from nest.solve.dp.stage_times import ModeArrays

if TYPE_CHECKING:
    from nest.solve.dp.units import Run

Numbers = NDArray[numpy.int64]


@frozen(eq=False, repr=False)
class Kinds:
    """Layers of a unit of each run, grouped by block."""

    layers: tuple[tuple[int, ...], ...]  # Of each kind.
    blocks: tuple[int, ...]  # Block of each kind; -1: none. Shape `(kinds,)`.
    runs: Numbers  # Run of each kind. Shape `(kinds,)`.

    @classmethod
    def of(cls, runs: Sequence[Run], units: Sequence[tuple[int, ...]]) -> Kinds:
        """Kinds of runs; `units` are the layers of each block in order."""
        home = {layer: block for block, layers in enumerate(units) for layer in layers}
        found: list[tuple[tuple[int, ...], int, int]] = []
        for index, run in enumerate(runs):
            by_block: dict[int, list[int]] = {}
            for layer in run.units[0]:
                by_block.setdefault(home.get(layer, -1), []).append(layer)
            found += [(tuple(by_block[block]), block, index) for block in sorted(by_block)]
        layers, blocks, of_runs = zip(*found, strict=True)
        return cls(layers, blocks, numpy.array(of_runs))

    def first(self, held: Counts, most: int) -> Numbers:
        """Layers of each kind in the first 0, 1, ... `most` blocks of a chunk. Shape `(most + 1, kinds)`."""
        steps, last = [[0] * len(self.layers)], (-1, -1)
        for run, count in enumerate(held):
            mine = [kind for kind in numpy.flatnonzero(self.runs == run).tolist() if self.blocks[kind] >= 0]
            for kind in mine * count:
                # A block of which a run holds one part and the next one another is one block.
                if not (self.blocks[kind] == last[0] and last[1] != run):
                    steps.append([0] * len(self.layers))
                steps[-1][kind] += 1
                last = self.blocks[kind], run
        total = numpy.cumsum(steps[: most + 1], axis=0)
        return numpy.concatenate([total, total[-1:].repeat(most + 1 - len(total), axis=0)])

    def sums(self, rows: Array) -> Array:
        """Sum the last axis (layers) by kind."""
        every = [layer for layers in self.layers for layer in layers]
        starts = [0, *accumulate(map(len, self.layers[:-1]))]
        found: Array = numpy.add.reduceat(rows[..., every], starts, axis=-1)
        return found


class Layout(NamedTuple):
    """Placements of units in a stage's chunks with equal first blocks."""

    share: Share  # Least contents of the chunks, and further units that each may hold.
    beyond: Counts  # Least units of each run in all chunks beyond those of the pattern.
    first: Numbers  # `Kinds.first` of each chunk. Shape `(most + 1, chunks, kinds)`.


def layouts(share: Share, kinds: Kinds, most: int) -> list[Layout]:
    """Layouts of units in chunks, distinguished by their first one, two, ... `most` blocks."""
    every = [list(_alike(fixed, room, kinds, most)) for fixed, room in zip(share.fixed, share.room, strict=True)]
    found = []
    for chosen in product(*every):
        least, rooms, first = zip(*chosen, strict=True)
        beyond = tuple(sum(each) for each in zip(*least, strict=True))
        total = tuple(
            tuple(own + more for own, more in zip(*rows, strict=True)) for rows in zip(share.fixed, least, strict=True)
        )
        found.append(Layout(evolve(share, fixed=total, room=rooms), beyond, numpy.stack(first, axis=1)))
    return found


def _alike(fixed: Counts, room: Counts, kinds: Kinds, most: int) -> Iterator[tuple[Counts, Counts, Numbers]]:
    """Contents of a chunk beyond the fixed ones by equal first blocks: least, further units, and first blocks."""
    open_ = [run for run, more in enumerate(room) if more]
    begun: tuple[list[Counts], Numbers] | None = None
    for held in product(*(range(more + 1) for more in room)):
        first = kinds.first(tuple(own + more for own, more in zip(fixed, held, strict=True)), most)
        if begun is not None and len(open_) == 1 and (begun[1] == first).all():
            begun[0].append(held)  # Units of one run alone are next to each other here.
            continue
        if begun is not None:
            yield _span(*begun)
        begun = [held], first
    if begun is not None:
        yield _span(*begun)


def _span(held: Sequence[Counts], first: Numbers) -> tuple[Counts, Counts, Numbers]:
    return held[0], tuple(last - own for own, last in zip(held[0], held[-1], strict=True)), first


@frozen(eq=False, repr=False)
class Laid:
    """Possible contents of a stage by layout."""

    layouts: list[Layout]
    most: int  # First blocks that layouts distinguish.
    of: Numbers  # Layout of each point. Shape `(points,)`.
    counts: Numbers  # Units of each run. Shape `(points, runs)`.
    beyond: Numbers  # Units beyond the least of its layout. Shape `(points, runs)`.
    repeated: NDArray[numpy.bool_]  # An earlier point has as many units. Shape `(points,)`.

    @classmethod
    def within(
        cls, every: list[Layout], most: int, fixed: Counts, ranges: Sequence[Sequence[int]]
    ) -> tuple[Laid, list[Counts]]:
        """Contents that layouts allow among these numbers of units beyond the fixed ones; and the numbers."""
        further: list[Counts] = []
        of = []
        for index, layout in enumerate(every):
            more = [sum(row[run] for row in layout.share.room) for run in range(len(ranges))]
            own = [
                range(max(low, each[0]), min(low + many, each[-1]) + 1)
                for low, many, each in zip(layout.beyond, more, ranges, strict=True)
            ]
            points = list(product(*own))
            further += points
            of += [index] * len(points)
        counts, places = numpy.array(further, dtype=numpy.int64), numpy.array(of, dtype=numpy.int64)
        counts = counts.reshape(len(further), len(ranges))
        least = numpy.array([layout.beyond for layout in every])
        met, repeated = set[Counts](), []
        for each in further:
            repeated.append(each in met)
            met.add(each)
        return cls(
            every, most, places, counts + numpy.array(fixed), counts - least[places], numpy.array(repeated)
        ), further


@frozen(eq=False, repr=False)
class ModePair:
    """Two recompute modes of a candidate by kind of layers: for first blocks, and for others."""

    numbers: Numbers  # Of first blocks, by choice.
    kinds: Kinds
    # Extra seconds, bytes of the first micro-batch and of each further one, then seconds of ports by level. Shape `(2,
    # rows, kinds)`.
    rows: Array
    peak: Array  # Transient bytes. Shape `(2, kinds)`.
    stashes: tuple[bool, bool]  # Each mode keeps the inputs of chunks.
    more: tuple[float, ...]  # Bytes of each further micro-batch of a unit of each run, in the mode of the others.
    covered: bool  # A pure mode does the same if all blocks of every chunk are first.

    @classmethod
    def of(
        cls, candidate: Candidate, pair: tuple[str, str], numbers: Sequence[int], kinds: Kinds, *, covered: bool
    ) -> ModePair:
        """Pair of two modes by name, for such numbers of first blocks."""
        modes, runs = [candidate.mode(name) for name in pair], int(kinds.runs.max()) + 1
        levels = max((len(each.busy) for each in modes if each.busy is not None), default=0)
        rows = kinds.sums(numpy.array([mode_rows(each, levels) for each in modes]))
        peak = numpy.array([[each.peak[list(layers)].max() for layers in kinds.layers] for each in modes])
        more = numpy.bincount(kinds.runs, weights=rows[1, 2], minlength=runs)
        return cls(
            numpy.array(numbers),
            kinds,
            rows,
            peak,
            (modes[0].stash_inputs, modes[1].stash_inputs),
            tuple(more.tolist()),
            covered,
        )

    def _split(self, laid: Laid) -> tuple[Numbers, Numbers]:
        """Layers of each kind in first blocks, and in others. Shape `(choices, points, kinds)`."""
        every = numpy.array(
            [layout.first.sum(axis=1)[numpy.minimum(self.numbers, laid.most)] for layout in laid.layouts]
        )
        first = every[laid.of].swapaxes(0, 1)
        return first, laid.counts[:, self.kinds.runs] - first

    def arrays(self, laid: Laid) -> ModeArrays:
        """Costs of a stage by choice, without the bytes of further micro-batches. Shape `(choices, points)`."""
        first, rest = self._split(laid)
        extra, held, _, *busy = numpy.moveaxis(_summed(self.rows, first, rest), -1, 0)
        one, other = (numpy.where(some > 0, peak, 0.0) for some, peak in zip((first, rest), self.peak, strict=True))
        peak = numpy.maximum(one, other).max(axis=2)
        return ModeArrays(extra, held + peak, numpy.zeros_like(extra), numpy.array(busy) if busy else 0.0)

    def stashed(self, laid: Laid) -> NDArray[numpy.bool_]:
        """Mask of choices that keep the inputs of chunks. Shape `(choices, points)`."""
        if self.stashes[0] == self.stashes[1]:
            return numpy.full((len(self.numbers), len(laid.of)), self.stashes[0])
        some = self._split(laid)[0 if self.stashes[0] else 1] > 0
        used: NDArray[numpy.bool_] = numpy.logical_or.reduce(some, axis=2)
        return used

    def spread(self, laid: Laid, held: Held, stashed: Sequence[float], choice: int, point: int) -> Spread:
        """Possible placements of a point's units with one of these choices."""
        layout = laid.layouts[laid.of[point]]
        own, more = numpy.array(layout.share.fixed), numpy.array(self.more)
        inputs = self.stashed(laid)[choice, point] * numpy.array(stashed)
        ahead = own - numpy.array(held.share.fixed)
        counts = tuple(laid.beyond[point].tolist())
        kept = self.kept(layout)[choice] - own @ more
        return Spread(evolve(held, share=layout.share), counts, self.more, inputs + kept, ahead)

    def kept(self, layout: Layout) -> Array:
        """Bytes of each further micro-batch of each chunk's least contents. Shape `(choices, chunks)`."""
        first = layout.first[numpy.minimum(self.numbers, len(layout.first) - 1)]
        rest = numpy.array(layout.share.fixed)[:, self.kinds.runs] - first
        kept: Array = _summed(self.rows[:, 2:3], first, rest)[..., 0]
        return kept


def mode_rows(mode: RecomputeMode, levels: int) -> list[Array]:
    """Rows of a mode for `ModePair.rows`, by layer."""
    busy = numpy.zeros((levels, len(mode.extra))) if mode.busy is None else mode.busy
    return [mode.extra, mode.first, mode.more, *busy]


def _summed(rows: Array, first: Numbers, rest: Numbers) -> Array:
    """Sums of rows over first layers and others; infinite if a summand is. Shape `(..., rows)`."""
    finite = numpy.isfinite(rows)
    if finite.all():
        whole: Array = first @ rows[0].T + rest @ rows[1].T
        return whole
    known = numpy.where(finite, rows, 0.0)
    endless = first @ (~finite[0]).T.astype(float) + rest @ (~finite[1]).T.astype(float)
    found: Array = numpy.where(endless > 0, numpy.inf, first @ known[0].T + rest @ known[1].T)
    return found


class Spread(NamedTuple):
    """Possible placements of a stage's units in its chunks."""

    held: Held  # Micro-batches of chunks.
    counts: Counts  # Free units of each run.
    more: Sequence[float]  # Bytes of each further micro-batch of a unit of each run.
    kept: Sequence[float] | Array  # Bytes of each further micro-batch of the rest of each chunk.
    ahead: Numbers | int = 0  # Decided units of each run beyond those of the pattern. Shape `(chunks, runs)`.

    def needed(self) -> float:
        """Least bytes of micro-batches beyond one at the fullest moment."""
        return self.held.needed(self.counts, self.more, self.held.base(self.more, self.kept))[0]

    def evenly(self, room: float) -> tuple[Counts, ...]:
        """Same as `Held.spread`, beyond the fixed units of the pattern."""
        return self.whole(self.held.spread(self.counts, self.more, self.kept, room))

    def whole(self, laid: Sequence[Counts]) -> tuple[Counts, ...]:
        """Units of each run in chunks beyond those of the pattern."""
        return tuple(map(tuple, (numpy.array(laid) + self.ahead).tolist()))


class Beyond(NamedTuple):
    """Bytes of micro-batches beyond one. Shape `(choices, points)` each."""

    least: Array  # Lower bound.
    even: Array  # Evenly spread.
    most: Array  # Upper bound.


def beyond_one(pair: ModePair, laid: Laid, held: Held, stashed: Sequence[float]) -> Beyond:
    """Bytes of micro-batches beyond one, if chunks keep inputs of so many bytes."""
    found, more = numpy.empty((3, len(pair.numbers), len(laid.of))), numpy.array(pair.more)
    stashes, weights = pair.stashed(laid), held.beyond_one
    for index, layout in enumerate(laid.layouts):
        points = numpy.flatnonzero(laid.of == index)
        if not len(points):
            continue
        base = (pair.kept(layout) @ weights.T)[:, None] + stashes[:, points, None] * (weights @ numpy.array(stashed))
        least, even = base, base
        for run, lean, spread in evolve(held, share=layout.share).grown(laid.beyond[points]):
            least, even = least + more[run] * lean, even + more[run] * spread
        most = base.max(axis=2) + max(weights.max(), 0.0) * (laid.beyond[points] @ more)
        found[:, :, points] = least.max(axis=2), even.max(axis=2), most
    return Beyond(*found)


def joined(tables: Sequence[ChoiceTable], points: int) -> ChoiceTable:
    """Join tables of one or several choices, without ports if these delay nothing."""
    if not any(each.ports is not None and each.ports.tight.any() for each in tables):
        tables = [each._replace(ports=None) for each in tables]
    sizes = [each.time.size // points for each in tables]

    def together(arrays: Sequence[Any]) -> Any:
        shapes = zip(arrays, sizes, strict=True)
        return numpy.concatenate([_wide(each, size, points) for each, size in shapes], axis=-2)

    def fields(some: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
        return {name: together([getattr(each, name) for each in some]) for name in names}

    ports = [each.ports for each in tables if each.ports is not None]
    parts = [each.parts for each in tables if each.parts is not None]
    return ChoiceTable(
        **fields(tables, ("time", "sync", "first", "more")),
        ports=Ports(**fields(ports, Ports.names()), micro_batches=ports[0].micro_batches) if ports else None,
        parts=Parts(**fields(parts, ("forward", "inputs", "weights", "work")), hides=parts[0].hides) if parts else None,
    )


def _wide(array: Any, choices: int, points: int) -> Any:
    """Broadcast a table's array to `(choices, points)`, with any levels in front."""
    return numpy.broadcast_to(array, (*(array.shape[:1] if array.ndim > 2 else ()), choices, points))
