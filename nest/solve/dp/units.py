"""How many units each chunk of a plan may hold (PROBLEM.md section 4): the splits of a model into chunks.

Chunks are runs of consecutive units: transformer blocks, and embedding and head where they count as units. Units that
follow each other and are alike make a run of them, in which only numbers matter. A pattern says in which chunk each of
these runs begins and ends, which decides what crosses every border; how many units of it the chunks hold beyond one
each is left open. Where all units differ each pattern is one split.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate

import numpy
from attrs import define, evolve, field, frozen
from numpy.typing import NDArray

from nest.instance import Array, Candidate, Instance, Schedule, admits, chunks_of, route
from nest.solve.dp.downsets import Downsets, layer_classes, membership
from nest.solve.dp.pairs import Pairs
from nest.solve.dp.sums import cuts

MOST_PATTERNS = 1_000
"""Patterns up to which all are searched. Each takes about 2 ms where it may hold the best plan; of more, only even
splits are searched, and the result says so."""

Unit = tuple[int, ...]
"""Layers, ascending."""


@frozen(cache_hash=True, repr=False)
class Run:
    """Units that follow each other and are alike."""

    units: tuple[Unit, ...]


@frozen(cache_hash=True, repr=False)
class Pattern:
    """Where runs begin and end; with how many units more each chunk holds, a split of the model.

    Attributes:
        runs: all units, in pipeline order.
        first: the chunk in which each run begins.
        last: the chunk in which it ends: each chunk from the first to the last holds one of its units at least.
        borders: the layers behind each border between two chunks, as bitmasks. Shape `(chunks - 1,)`.
    """

    runs: tuple[Run, ...]
    first: tuple[int, ...]
    last: tuple[int, ...]
    borders: tuple[int, ...]

    @property
    def chunks(self) -> int:
        """Chunks of the whole pipeline."""
        return self.last[-1] + 1

    @property
    def parted(self) -> int:
        """Runs that end with a chunk, where the next one begins with another."""
        return sum(end != begin for end, begin in zip(self.last, self.first[1:], strict=False))

    @property
    def slack(self) -> tuple[int, ...]:
        """Units of each run beyond those that are fixed. Shape `(runs,)`."""
        return tuple(
            0 if first == last else len(run.units) - (last - first + 1)
            for run, first, last in zip(self.runs, self.first, self.last, strict=True)
        )

    def fixed(self, chunk: int) -> tuple[int, ...]:
        """Units of each run that a chunk holds at least. Shape `(runs,)`."""
        return tuple(
            0 if not first <= chunk <= last else len(run.units) if first == last else 1
            for run, first, last in zip(self.runs, self.first, self.last, strict=True)
        )

    def split(self, further: Sequence[tuple[int, ...]]) -> tuple[Unit, ...]:
        """The layers of each chunk that holds so many units of each run beyond those fixed. Shape `(chunks,)`."""
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
    """A set of layers as a bitmask."""
    return sum(1 << layer for layer in layers)


@define(eq=False, repr=False)
class Splits:
    """The splits of an instance's model into chunks, each pattern made once.

    Attributes:
        instance: the problem.
        even_only: whether there were too many patterns for some number of chunks, so that only even splits are left.
    """

    instance: Instance
    even_only: bool = False
    _known: dict[tuple[str, int, int], tuple[Pattern, ...]] = field(factory=dict)
    _homes: dict[tuple[str, int, int], tuple[int, ...]] = field(factory=dict)
    _counts: dict[tuple[str, int, int, int], tuple[int, ...]] = field(factory=dict)
    _some: dict[tuple[str, int, int], bool] = field(factory=dict)
    _by_chunks: dict[int, tuple[Pattern, ...]] = field(factory=dict)
    _units: list[tuple[Unit, ...]] = field(factory=list)
    _runs: list[tuple[Run, ...]] = field(factory=list)

    @property
    def units(self) -> tuple[Unit, ...]:
        """What chunks are runs of, in pipeline order."""
        if not self._units:
            space = self.instance.space
            self._units.append(_uncut(self.instance, space.blocks_and_ends or space.blocks))
        return self._units[0]

    @property
    def runs(self) -> tuple[Run, ...]:
        """The units in runs of alike ones; where constraints tell units apart, each by itself."""
        if not self._runs:
            alone = tuple(Run((unit,)) for unit in self.units)
            self._runs.append(alone if self._told_apart else _alike(self.instance, self.units))
        return self._runs[0]

    @property
    def _groups(self) -> list[tuple[int, ...]]:
        """Layers that must be on one stage, for each constraint that says so."""
        named = {name: layer for layer, name in enumerate(self.instance.graph.layers)}
        shared = [each.same_stage for each in self.instance.space.constraints if each.same_stage]
        return [tuple(named[name] for name in group) for group in shared]

    @property
    def _told_apart(self) -> bool:
        """Whether it matters which of alike units a stage holds: more than that the two ends share one."""
        inner = {layer for unit in self.units[1:-1] for layer in unit}
        return self.instance.space.partition is not None or any(not inner.isdisjoint(each) for each in self._groups)

    @property
    def statistics(self) -> dict[str, str]:
        """What of the space of chunks was left out."""
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
        """Whether a schedule has plans of so many stages; patterns that need not be made are counted alone."""
        key = (schedule.name, chunks_of(schedule), stages)
        if key not in self._some:
            space, number = self.instance.space, MOST_PATTERNS + 1
            if not space.even and space.partition is None and not self._groups:
                number = _how_many_anywhere(tuple(len(run.units) for run in self.runs), stages * chunks_of(schedule))
            self._some[key] = number > 0 if number <= MOST_PATTERNS else bool(self.of(schedule, stages))
        return self._some[key]

    def of(self, schedule: Schedule, stages: int) -> tuple[Pattern, ...]:
        """The patterns of a schedule's plans; none where there is no plan."""
        key = (schedule.name, chunks_of(schedule), stages)
        if key not in self._known:
            self._known[key] = tuple(self._patterns(self.homes(schedule, stages)))
        return self._known[key]

    def homes(self, schedule: Schedule, stages: int) -> tuple[int, ...]:
        """The stage, from 0, of each chunk."""
        key = (schedule.name, chunks_of(schedule), stages)
        if key not in self._homes:
            self._homes[key] = route(schedule, stages)
        return self._homes[key]

    def _patterns(self, homes: tuple[int, ...]) -> Iterator[Pattern]:
        """Those that constraints and a partition that is given allow."""
        chunks, partition = len(homes), self.instance.space.partition
        if partition is not None:
            stage = {layer: index for index, layers in enumerate(partition) for layer in layers}
            made = self._made(chunks, [[stage[run.units[0][0]] == home for home in homes] for run in self.runs])
        elif chunks in self._by_chunks:
            made = self._by_chunks[chunks]
        else:
            made = self._by_chunks[chunks] = self._made(chunks)
        return (each for each in made if self._allowed(each, homes))

    def _allowed(self, pattern: Pattern, homes: tuple[int, ...]) -> bool:
        """Whether layers lie on the stages they must."""
        home: dict[int, int] = {}
        for run, first, last in zip(pattern.runs, pattern.first, pattern.last, strict=True):
            for unit in run.units if first == last else run.units[:1]:
                home.update(dict.fromkeys(unit, homes[first]))
            home.update(dict.fromkeys(run.units[-1], homes[last]))
        partition = self.instance.space.partition or ()
        return all(len({home[layer] for layer in group}) == 1 for group in self._groups) and all(
            home[layer] == stage for stage, layers in enumerate(partition) for layer in layers
        )

    def _made(self, chunks: int, allowed: Sequence[Sequence[bool]] | None = None) -> tuple[Pattern, ...]:
        """The patterns of so many chunks; `allowed` says which of them each run may be in, where not in all."""
        if self.instance.space.even:
            return self._even(chunks)
        lengths = [len(run.units) for run in self.runs]
        if _how_many(lengths, chunks, allowed) > MOST_PATTERNS:
            self.even_only = True
            return self._even(chunks)
        return tuple(_pattern(self.runs, *ends) for ends in _ends(lengths, chunks, allowed))

    def _even(self, chunks: int) -> tuple[Pattern, ...]:
        """The even split; none where there is none, or it parts what must stay together."""
        space, places = self.instance.space, tuple(range(chunks))
        units = next((each for each in (space.blocks, space.blocks_and_ends) if each and len(each) % chunks == 0), ())
        size = len(units) // chunks
        joined = [tuple(sorted(sum(units[first : first + size], ()))) for first in range(0, len(units), size or 1)]
        if not joined or len(_uncut(self.instance, joined)) < chunks:
            return ()
        return (_pattern(tuple(Run((unit,)) for unit in joined), places, places),)


def _uncut(instance: Instance, units: Sequence[Unit]) -> tuple[Unit, ...]:
    """The units, with those in one between which no cut may lie."""
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


def _alike(instance: Instance, units: Sequence[Unit]) -> tuple[Run, ...]:
    """Units in runs: of units that cost the same in all candidates, with as much crossing between any two."""
    classes = layer_classes(instance)
    own = [[classes[layer] for layer in unit] for unit in units]
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


def border_bytes(instance: Instance, candidates: Iterable[Candidate], borders: Sequence[int]) -> Array:
    """Bytes per micro-batch that cross into each set of layers, a bitmask. Shape `(candidates, borders)`."""
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
    """Sets of layers as the stages between each of them and the empty one, whether or not they are downsets."""
    every = numpy.concatenate([numpy.zeros((1, layers), dtype=bool), members.reshape(-1, layers)])
    larger = numpy.arange(1, len(every), dtype=numpy.int32)
    return Downsets(every, Pairs.of(len(every), larger, numpy.zeros_like(larger)))


def _pattern(runs: tuple[Run, ...], first: tuple[int, ...], last: tuple[int, ...]) -> Pattern:
    """The pattern with its borders: any split that it has will do to find what crosses them."""
    bare = Pattern(runs, first, last, ())
    # All that is left open is in the chunk in which the run ends.
    more = [
        tuple(slack if chunk == end else 0 for slack, end in zip(bare.slack, last, strict=True))
        for chunk in range(bare.chunks)
    ]
    behind, borders = 0, []
    for layers in reversed(bare.split(more)[1:]):
        behind |= mask_of(layers)
        borders.append(behind)
    return evolve(bare, borders=tuple(reversed(borders)))


Ends = tuple[tuple[int, ...], tuple[int, ...]]
"""The first and the last chunk of each run."""


def _ends(lengths: Sequence[int], chunks: int, allowed: Sequence[Sequence[bool]] | None) -> Iterator[Ends]:
    """Where runs of such lengths may begin and end in so many chunks, those that end first first."""

    def walk(run: int, begin: int) -> Iterator[tuple[tuple[int, int], ...]]:
        for end in _reached(lengths, chunks, allowed, run, begin):
            if run == len(lengths) - 1:
                if end == chunks - 1:
                    yield ((begin, end),)
                continue
            for following in (end, end + 1):
                yield from (((begin, end), *rest) for rest in walk(run + 1, following))

    for found in walk(0, 0):
        yield tuple(begin for begin, _ in found), tuple(end for _, end in found)


def _how_many(lengths: Sequence[int], chunks: int, allowed: Sequence[Sequence[bool]] | None) -> int:
    """How many there are."""
    ways = {chunks - 1: 1, chunks: 0}
    for run in range(len(lengths) - 1, -1, -1):
        last = run == len(lengths) - 1
        before: dict[int, int] = {}
        for begin in range(chunks):
            ends = _reached(lengths, chunks, allowed, run, begin)
            before[begin] = sum(
                int(end == chunks - 1) if last else ways.get(end, 0) + ways.get(end + 1, 0) for end in ends
            )
        ways = before
    return ways[0]


@lru_cache(maxsize=1 << 10)
def _how_many_anywhere(lengths: tuple[int, ...], chunks: int) -> int:
    """The same where each run may be in all of them: models that are planned again have the same."""
    return _how_many(lengths, chunks, None)


def _reached(
    lengths: Sequence[int], chunks: int, allowed: Sequence[Sequence[bool]] | None, run: int, begin: int
) -> range:
    """The chunks in which a run may end that begins in chunk `begin`."""
    if begin >= chunks or (allowed is not None and not allowed[run][begin]):
        return range(0)
    left = sum(lengths[run + 1 :])
    return range(max(begin, chunks - 1 - left), min(begin + lengths[run], chunks))
