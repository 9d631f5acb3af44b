"""Splits of a model into chunks by their numbers of units (PROBLEM.md section 4).

Chunks are runs of consecutive units: transformer blocks, and embedding and head if they count as units. Equal
consecutive units form a run, in which only numbers matter. A pattern tells in which chunk each run begins and ends, and
so the tensors across every border; the units of chunks beyond one each are free. If all units differ, each pattern is
one split.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, islice, pairwise

import numpy
from attrs import define, evolve, field, frozen
from numpy.typing import NDArray

from nest.instance import Array, Candidate, Instance, Schedule, admits, chunks_of, route
from nest.reuse import once
from nest.solve.dp.downsets import Downsets, membership
from nest.solve.dp.fillings import Bounds, bounds
from nest.solve.dp.pairs import Pairs, layer_classes
from nest.solve.dp.sums import cuts

MOST_PATTERNS = 1_000
"""Most patterns that are all searched. Each takes about 2 ms if it may hold the best plan; with more, only even splits
are searched, and the result says so."""

Unit = tuple[int, ...]  # Layers, ascending.


@frozen(cache_hash=True, repr=False)
class Run:
    """Equal consecutive units."""

    units: tuple[Unit, ...]


@frozen(cache_hash=True, repr=False)
class Pattern:
    """Starts and ends of runs; with the further units of each chunk, a split of the model."""

    runs: tuple[Run, ...]  # All units, in pipeline order.
    held: tuple[Bounds, ...]  # Least and most units of each run, by chunk. Shape `(chunks,)`.
    borders: tuple[int, ...]  # Layers behind each border between chunks, as bitmasks. Shape `(chunks - 1,)`.

    @property
    def chunks(self) -> int:
        """Chunks of the whole pipeline."""
        return len(self.held)

    @property
    def parted(self) -> int:
        """Runs that end with a chunk while the next begins with another."""
        ends = [self.places(run) for run in range(len(self.runs))]
        return sum(one[-1] != other[0] for one, other in pairwise(ends))

    def places(self, run: int) -> list[int]:
        """Chunks with units of a run."""
        return [chunk for chunk, held in enumerate(self.held) if held[run][1]]

    @cached_property
    def slack(self) -> tuple[int, ...]:
        """Free units of each run. Shape `(runs,)`."""
        fixed = map(sum, zip(*map(self.fixed, range(self.chunks)), strict=True))
        return tuple(len(run.units) - own for run, own in zip(self.runs, fixed, strict=True))

    def fixed(self, chunk: int) -> tuple[int, ...]:
        """Least units of each run in a chunk. Shape `(runs,)`."""
        return tuple(least for least, _ in self.held[chunk])

    def split(self, further: Sequence[tuple[int, ...]]) -> tuple[Unit, ...]:
        """Layers of each chunk with so many further units of each run. Shape `(chunks,)`."""
        taken, chunks = [0] * len(self.runs), []
        for chunk, more in enumerate(further):
            layers: list[int] = []
            for index, (count, extra) in enumerate(zip(self.fixed(chunk), more, strict=True)):
                end = taken[index] + count + extra
                layers += [layer for unit in self.runs[index].units[taken[index] : end] for layer in unit]
                taken[index] = end
            chunks.append(tuple(sorted(layers)))
        return tuple(chunks)


def mask_of(layers: Sequence[int]) -> int:
    """Set of layers as a bitmask."""
    return sum(1 << layer for layer in layers)


@define(eq=False, repr=False)
class Splits:
    """Splits of an instance's model into chunks, each pattern made once."""

    instance: Instance
    even_only: bool = False  # Too many patterns for some number of chunks, so only even splits are left.
    _known: dict[tuple[str, int, int], tuple[Pattern, ...]] = field(factory=dict)
    _homes: dict[tuple[str, int, int], tuple[int, ...]] = field(factory=dict)
    _counts: dict[tuple[str, int, int, int], tuple[int, ...]] = field(factory=dict)
    _some: dict[tuple[str, int, int], bool] = field(factory=dict)
    _by_chunks: dict[int, tuple[Pattern, ...]] = field(factory=dict)
    _fillings: dict[int, list[tuple[Bounds, ...]]] = field(factory=dict)
    _units: list[tuple[Unit, ...]] = field(factory=list)
    _runs: list[tuple[Run, ...]] = field(factory=list)

    @property
    def units(self) -> tuple[Unit, ...]:
        """Units of which chunks are runs, in pipeline order."""
        if not self._units:
            space = self.instance.space
            self._units.append(_uncut(self.instance, space.blocks_and_ends or space.blocks))
        return self._units[0]

    @property
    def runs(self) -> tuple[Run, ...]:
        """Runs of equal units; single units if constraints distinguish them."""
        if not self._runs:
            alone = tuple(Run((unit,)) for unit in self.units)
            self._runs.append(alone if self._told_apart else _alike(self.instance, self.units, self._blocks))
        return self._runs[0]

    @property
    def _groups(self) -> list[tuple[int, ...]]:
        """Layers that must share a stage, by constraint."""
        named = {name: layer for layer, name in enumerate(self.instance.graph.layers)}
        shared = [each.same_stage for each in self.instance.space.constraints if each.same_stage]
        return [tuple(named[name] for name in group) for group in shared]

    @property
    def _told_apart(self) -> bool:
        """True if constraints distinguish equal units, beyond a shared stage of both ends."""
        inner = {layer for unit in self.units[1:-1] for layer in unit}
        return self.instance.space.partition is not None or any(not inner.isdisjoint(each) for each in self._groups)

    @property
    def statistics(self) -> dict[str, str]:
        """Restrictions of the space of chunks."""
        return {"chunks": "even"} if self.even_only else {}

    def counts(self, schedule: Schedule, micro_batches: int, most: int) -> tuple[int, ...]:
        """Numbers of stages up to `most` with which the schedule has plans of so many micro-batches."""
        chunks = chunks_of(schedule)
        most = min(most, len(self.units) // chunks)
        key = (schedule.name, chunks, micro_batches, most)
        if key not in self._counts:
            every = [each for each in range(2, most + 1) if admits(schedule, each, micro_batches)]
            self._counts[key] = tuple([each for each in every if self._any(schedule, each)])
        return self._counts[key]

    def _any(self, schedule: Schedule, stages: int) -> bool:
        """True if a schedule has plans of so many stages; makes no more patterns than needed."""
        key = (schedule.name, chunks_of(schedule), stages)
        if key not in self._some:
            space, held = self.instance.space, list[tuple[Bounds, ...]]()
            if not space.even and space.partition is None and not self._groups:
                held = self._held(stages * chunks_of(schedule), None)
            self._some[key] = 0 < len(held) <= MOST_PATTERNS or bool(self.of(schedule, stages))
        return self._some[key]

    def of(self, schedule: Schedule, stages: int) -> tuple[Pattern, ...]:
        """Patterns of a schedule's plans; empty: there are no plans."""
        key = (schedule.name, chunks_of(schedule), stages)
        return once(self._known, key, lambda: tuple(self._patterns(self.homes(schedule, stages))))

    def homes(self, schedule: Schedule, stages: int) -> tuple[int, ...]:
        """Stage, from 0, of each chunk."""
        key = (schedule.name, chunks_of(schedule), stages)
        return once(self._homes, key, lambda: route(schedule, stages))

    def _patterns(self, homes: tuple[int, ...]) -> Iterator[Pattern]:
        """Patterns that constraints and a given partition allow."""
        chunks, partition = len(homes), self.instance.space.partition
        if partition is not None:
            stage = {layer: index for index, layers in enumerate(partition) for layer in layers}
            made = self._made(chunks, [[stage[run.units[0][0]] == home for run in self.runs] for home in homes])
        elif chunks in self._by_chunks:
            made = self._by_chunks[chunks]
        else:
            made = self._by_chunks[chunks] = self._made(chunks)
        return (each for each in made if self._allowed(each, homes))

    def _allowed(self, pattern: Pattern, homes: tuple[int, ...]) -> bool:
        """True if layers are on their required stages."""
        home: dict[int, int] = {}
        for index, run in enumerate(pattern.runs):
            places = pattern.places(index)
            first, last = places[0], places[-1]
            for unit in run.units if first == last else run.units[:1]:
                home.update(dict.fromkeys(unit, homes[first]))
            home.update(dict.fromkeys(run.units[-1], homes[last]))
        partition = self.instance.space.partition or ()
        return all(len({home[layer] for layer in group}) == 1 for group in self._groups) and all(
            home[layer] == stage for stage, layers in enumerate(partition) for layer in layers
        )

    def _made(self, chunks: int, allowed: Sequence[Sequence[bool]] | None = None) -> tuple[Pattern, ...]:
        """Patterns of so many chunks; `allowed` tells the runs of each; None: all."""
        if self.instance.space.even:
            return self._even(chunks)
        found = self._held(chunks, allowed)
        if len(found) > MOST_PATTERNS:
            self.even_only = True
            return self._even(chunks)
        return tuple(_pattern(self.runs, each) for each in found)

    def _held(self, chunks: int, allowed: Sequence[Sequence[bool]] | None) -> list[tuple[Bounds, ...]]:
        """Contents of so many chunks, at most one more than `MOST_PATTERNS`."""
        if allowed is not None or chunks not in self._fillings:
            lengths = [len(run.units) for run in self.runs]
            # Chunks of stages that somebody has decided are of any size.
            sizes = None if allowed is not None else [self._blocks(run.units[0]) for run in self.runs]
            found = list(dict.fromkeys(islice(bounds(lengths, sizes, chunks, allowed), MOST_PATTERNS + 1)))
            if allowed is not None:
                return found
            self._fillings[chunks] = found
        return self._fillings[chunks]

    def _blocks(self, unit: Unit) -> int:
        """Transformer blocks of a unit; separate embedding and head have none."""
        space = self.instance.space
        blocks = space.blocks_and_ends[1:-1] or space.blocks
        return sum(not set(block).isdisjoint(unit) for block in blocks)

    def _even(self, chunks: int) -> tuple[Pattern, ...]:
        """The even split; empty if there is none, or if it separates layers kept together."""
        space, places = self.instance.space, tuple(range(chunks))
        units = next((each for each in (space.blocks, space.blocks_and_ends) if each and len(each) % chunks == 0), ())
        size = len(units) // chunks
        joined = [tuple(sorted(sum(units[first : first + size], ()))) for first in range(0, len(units), size or 1)]
        if not joined or len(_uncut(self.instance, joined)) < chunks:
            return ()
        whole = [tuple((int(run == chunk),) * 2 for run in places) for chunk in places]
        return (_pattern(tuple(Run((unit,)) for unit in joined), whole),)


def _uncut(instance: Instance, units: Sequence[Unit]) -> tuple[Unit, ...]:
    """Merge units between which no cut is possible."""
    home = {layer: index for index, unit in enumerate(units) for layer in unit}
    if not home:
        return ()
    spans = [sorted(home[layer] for layer in group) for group in instance.space.together if group]
    # What is read in front of where it is made must be made and read in one chunk.
    spans += [[home[reader], home[maker]] for maker, readers in instance.graph.tensors for reader in readers]
    joined = {place for span in spans for place in range(span[0] + 1, span[-1] + 1)}
    found: list[list[int]] = []
    for index, unit in enumerate(units):
        if index in joined:
            found[-1] += unit
        else:
            found.append(list(unit))
    return tuple(tuple(sorted(layers)) for layers in found)


def _alike(instance: Instance, units: Sequence[Unit], blocks: Callable[[Unit], int]) -> tuple[Run, ...]:
    """Runs of units with equal costs in all candidates, as many blocks, and equal tensors between neighbours."""
    classes, parts = layer_classes(instance), _blocks_of(instance, units)
    own = [(blocks(unit), [classes[layer] for layer in unit], part) for unit, part in zip(units, parts, strict=True)]
    behind = list(accumulate(map(mask_of, reversed(units)), initial=0))[1:-1]
    crossing = border_bytes(instance, instance.candidates, behind[::-1])
    runs: list[list[int]] = [[0]]
    for place in range(1, len(units)):
        run = runs[-1]
        alike = own[place] == own[run[0]] and (
            len(run) == 1 or bool((crossing[:, place - 1] == crossing[:, run[0]]).all())
        )
        runs[-1 if alike else len(runs) :] = [[*run, place]] if alike else [[place]]
    return tuple(Run(tuple(units[place] for place in run)) for run in runs)


def _blocks_of(instance: Instance, units: Sequence[Unit]) -> list[list[int]]:
    """Layers of each unit that are recomputed together, by number; blocks in several units distinguish these."""
    blocks = instance.space.units if instance.space.partial else ()
    home = {layer: number for number, block in enumerate(blocks) for layer in block}
    unit_of = {layer: number for number, unit in enumerate(units) for layer in unit}
    found = []
    for number, unit in enumerate(units):
        own = [home.get(layer, -1) for layer in unit]
        held = sorted({each for each in own if each >= 0})
        whole = {
            each: place for place, each in enumerate(held) if all(unit_of[layer] == number for layer in blocks[each])
        }
        found.append([whole.get(each, -1 if each < 0 else -2 - number) for each in own])
    return found


def border_bytes(instance: Instance, candidates: Iterable[Candidate], borders: Sequence[int]) -> Array:
    """Bytes per micro-batch into each set of layers, a bitmask. Shape `(candidates, borders)`."""
    layers = len(instance.graph.layers)
    sets = star(membership(borders, layers), layers)
    # Most candidates send the same: 273 of 1,000 blocks have 15 answers.
    crossing: dict[bytes, Array] = {}
    rows = []
    for each in candidates:
        key = each.tensor_bytes.tobytes()
        if key not in crossing:
            crossing[key] = cuts(instance, each, sets)[1:]
        rows.append(crossing[key])
    return numpy.array(rows)


def star(members: NDArray[numpy.bool_], layers: int) -> Downsets:
    """Sets of layers as stages between each of them and the empty one, downsets or not."""
    every = numpy.concatenate([numpy.zeros((1, layers), dtype=bool), members.reshape(-1, layers)])
    larger = numpy.arange(1, len(every), dtype=numpy.int32)
    return Downsets(every, Pairs.of(len(every), larger, numpy.zeros_like(larger)))


def _pattern(runs: tuple[Run, ...], held: Sequence[Bounds]) -> Pattern:
    """Pattern with its borders, found from any of its splits."""
    bare = Pattern(runs, tuple(held), ())
    left = list(bare.slack)
    more = []
    for chunk in held:
        more.append(tuple(min(most - least, rest) for (least, most), rest in zip(chunk, left, strict=True)))
        left = [rest - taken for rest, taken in zip(left, more[-1], strict=True)]
    behind, borders = 0, []
    for layers in reversed(bare.split(more)[1:]):
        behind |= mask_of(layers)
        borders.append(behind)
    return evolve(bare, borders=tuple(reversed(borders)))
