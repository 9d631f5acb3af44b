"""Patterns with their stages: what stages of several chunks may hold, what that costs, and bounds on step times."""

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from itertools import accumulate, product
from math import inf, prod

import numpy
from attrs import define, evolve, field, frozen
from numpy.typing import NDArray

from nest.instance import Array
from nest.solve.dp.choices import ChoiceTable, part_rows
from nest.solve.dp.chunk_bounds import ChunkBounds, chunks_of_stages, least_largest, least_of
from nest.solve.dp.chunk_stages import (
    ChunkStage,
    Held,
    Message,
    Share,
    StagePrices,
    messages,
)
from nest.solve.dp.configurations import Configuration
from nest.solve.dp.downsets import Downsets, membership
from nest.solve.dp.pareto import Floor
from nest.solve.dp.stages import StageTables, stage_tables
from nest.solve.dp.sums import CandidateSums, PartSums, candidate_sums, part_sums
from nest.solve.dp.units import Pattern, Run, border_bytes, mask_of, star
from nest.tolerances import LIMIT_SLACK

MOST_CONTENTS = 4_096
"""Sets of units up to which what they cost is worked out for all numbers of stages at once."""

PATTERN_STATES = 20_000
"""States of other searches that take as long as it takes to work out what the stages of a pattern cost."""

REMEMBERED = 128
"""Tables kept, and numbers of stages of configurations whose stages are kept."""


@frozen(eq=False, repr=False)
class Contents:
    """What stages may hold.

    Attributes:
        places: which of `sets` each set of layers is, by bitmask.
        sets: the stages between each set and the empty one.
    """

    places: dict[int, int]
    sets: Downsets


@frozen(eq=False, repr=False)
class Filled:
    """A pattern with the stages of a configuration.

    Attributes:
        pattern: where runs of units begin and end.
        stages: in pipeline order.
        held: of each what its chunks hold.
        tables: what each may choose.
        floor: bounds of the three terms of the step time, with every boundary at its cheapest.
        bound: of the step time, seconds.
    """

    pattern: Pattern
    stages: tuple[ChunkStage, ...]
    held: tuple[Held, ...]
    tables: StageTables
    floor: Floor
    bound: float


@define(eq=False, repr=False)
class ChunkCosts(ChunkBounds):
    """What plans of several chunks a stage cost."""

    _filled: OrderedDict[tuple[int, int], tuple[float, tuple[Filled, ...]]] = field(factory=OrderedDict, init=False)

    @property
    def _tables(self) -> OrderedDict[Hashable, tuple[StageTables, ChoiceTable]]:
        return self.once_in_room("tables", OrderedDict)

    def filled(self, configuration: Configuration, count: int, limit: float | None) -> tuple[Filled, ...]:
        """The patterns that may beat `limit`, with their stages and bounds; None: as far as they are known."""
        key = (configuration.order, count)
        known = self._filled.get(key)
        if known is not None and (limit is None or limit <= known[0]):
            self._filled.move_to_end(key)
            return known[1]
        most = inf if limit is None else limit
        found = tuple(each for each in self._fill(configuration, count, most) if each.bound <= most)
        self._filled[key] = most, found
        if len(self._filled) > REMEMBERED:
            self._filled.popitem(last=False)
        return found

    def _fill(
        self, configuration: Configuration, count: int, limit: float, *, exactly: bool = False
    ) -> Iterator[Filled]:
        """Every pattern whose compute leaves it a chance; `exactly` what stages need, not only whether it fits."""
        patterns = self.splits.of(configuration.schedule, count)
        longest = self.objective(configuration, count).time_limit(limit, self.least_rest(configuration, count))
        slowest = self._fixed_seconds(configuration, count).max(axis=1)
        for pattern, seconds in zip(patterns, slowest.tolist(), strict=True):
            if seconds <= longest:
                filled = self._filled_pattern(configuration, count, pattern, longest, limit, exactly=exactly)
                if filled is not None:
                    yield filled

    def _fixed_seconds(self, configuration: Configuration, count: int) -> Array:
        """Seconds per micro-batch that stages compute with what is fixed of each pattern. Shape `(patterns, s)`."""
        homes, candidate = self.splits.homes(configuration.schedule, count), configuration.candidate

        def made() -> Array:
            patterns = self.splits.of(configuration.schedule, count)
            found = numpy.zeros((len(patterns), count))
            for row, pattern in zip(found, patterns, strict=True):
                seconds = self._seconds(pattern, candidate)
                for chunk, home in enumerate(homes):
                    row[home] += sum(n * each for n, each in zip(pattern.fixed(chunk), seconds, strict=True) if n)
            return found

        return self.once_shared(("fixed", homes, candidate), made)

    def _filled_pattern(
        self, configuration: Configuration, count: int, pattern: Pattern, longest: float, limit: float, *, exactly: bool
    ) -> Filled | None:
        """A pattern with its stages that compute for `longest` seconds at most; None where it cannot beat `limit`."""
        homes, contents = self.splits.homes(configuration.schedule, count), self._contents(configuration, count)
        tables, _ = self._stage_tables(configuration, contents)
        objective, candidate = self.objective(configuration, count), configuration.candidate
        crossing = self.crossing(pattern, candidate)
        self.meter.count(PATTERN_STATES)
        received, chunks = messages(homes, crossing), chunks_of_stages(homes)
        shares = self.once_scheduled(("shares", pattern, homes), lambda: [Share.of(pattern, mine) for mine in chunks])
        keys: list[Hashable] = list(zip(shares, received, strict=True))
        priced = {
            key: self._prices(configuration, count, pattern, share, each, longest)
            for key, share, each in dict(zip(keys, zip(keys, shares, received, strict=True), strict=True)).values()
        }
        every = [priced[key] for key in keys]
        floor = self._floor(configuration, count, pattern, [(each, None) for each in every])
        if objective.of(floor) > limit:
            return None
        alike: dict[Hashable, ChunkStage] = {}
        stages, every_held = [], []
        for index, (key, prices) in enumerate(zip(keys, every, strict=True)):
            held = Held(self.moments(configuration, count, index), shares[index])
            stashed = tuple(crossing[chunk - 1] if chunk else 0.0 for chunk in chunks[index])
            whole = (key, held.moments, stashed)
            if whole not in alike:
                memory = self._memory(configuration, pattern, held, prices, stashed, tables, exactly=exactly)
                fits = memory <= tables.capacity
                if not exactly and not fits.any():
                    return None
                # What a stage needs matters as far as it fits.
                room = (key, memory.tobytes() if exactly else fits.tobytes())
                alike[whole] = alike.setdefault(room, ChunkStage(prices, memory))
            stages.append(alike[whole])
            every_held.append(held)
        terms = [(stage.prices, stage.memory <= tables.capacity) for stage in alike.values()]
        known = {id(stage): term for stage, term in zip(alike.values(), terms, strict=True)}
        floor = self._floor(configuration, count, pattern, [known[id(stage)] for stage in stages])
        bound = objective.of(floor) if floor.largest_time < inf else inf
        return Filled(pattern, tuple(stages), tuple(every_held), tables, floor, bound)

    def _prices(
        self,
        configuration: Configuration,
        count: int,
        pattern: Pattern,
        held: Share,
        received: tuple[Message, ...],
        longest: float,
    ) -> StagePrices:
        """What a stage takes, whatever it holds, that computes for `longest` seconds at most."""
        contents, slots = self._contents(configuration, count), self.slots(configuration)
        seconds = self._seconds(pattern, configuration.candidate)
        fixed = [sum(column) for column in zip(*held.fixed, strict=True)]
        left = longest * (1 + LIMIT_SLACK) - sum(n * each for n, each in zip(fixed, seconds, strict=True))
        ranges = (
            min(most, int(left / each)) if each > 0 and left < inf else most
            for most, each in zip(held.most(pattern.slack), seconds, strict=True)
        )
        further = tuple(product(*(range(max(most, 0) + 1) for most in ranges)))
        heads = [self._heads(run) for run in pattern.runs]
        masks = (
            sum(head[own + more] for head, own, more in zip(heads, fixed, counts, strict=True)) for counts in further
        )
        columns = numpy.array([contents.places[mask] for mask in masks])
        table = self._stage_tables(configuration, contents)[1].of_classes(columns)
        links = tuple(self.instance.cluster.levels[level] for level in slots.levels)
        return StagePrices(further, columns, table, received, links, slots.levels, self.apart(configuration, count))

    def _heads(self, run: Run) -> tuple[int, ...]:
        """The first none, one, two, ... units of a run as bitmasks."""
        return self.once_scheduled(("heads", run), lambda: tuple(accumulate(map(mask_of, run.units), initial=0)))

    def _memory(
        self,
        configuration: Configuration,
        pattern: Pattern,
        held: Held,
        prices: StagePrices,
        stashed: Sequence[float],
        tables: StageTables,
        *,
        exactly: bool,
    ) -> Array:
        """Bytes of a stage with each choice where units lie in the chunks that need least. Shape `(choices, points)`.

        Unless they are wanted exactly, they are only as much above or below what devices have.
        """
        memory = numpy.empty(prices.table.first.shape)
        names = [choice.recompute for choice in tables.choices]
        for name in dict.fromkeys(names):
            rows = [index for index, other in enumerate(names) if other == name]
            more, stashes = self.more(pattern, configuration.candidate, name)
            kept = stashed if stashes else [0.0] * len(stashed)
            least, most = held.between(prices.further, more, kept)
            first = prices.table.first[rows]
            memory[rows] = first + least
            if len(held.moments) == 1:
                continue
            fits = first + most <= tables.capacity
            open_ = numpy.isfinite(first) if exactly else ~fits & (first + least <= tables.capacity)
            for point in numpy.flatnonzero(open_.any(axis=0)).tolist():
                needed = held.needed(prices.further[point], more, held.base(more, kept))[0]
                memory[rows, point] = numpy.where(open_[:, point], first[:, point] + needed, memory[rows, point])
        return memory

    def more(self, pattern: Pattern, candidate: int, name: str) -> tuple[tuple[float, ...], bool]:
        """Bytes of each further micro-batch of a unit of each run, and whether the inputs of chunks are kept too."""
        mode = self.instance.candidates[candidate].mode(name)
        return self._of_units(pattern, ("more", candidate, name), mode.more), mode.stash_inputs

    def _seconds(self, pattern: Pattern, candidate: int) -> tuple[float, ...]:
        """Seconds per micro-batch that a unit of each run computes."""
        used = self.instance.candidates[candidate]
        return self._of_units(pattern, ("seconds", candidate), used.forward + used.backward)

    def _of_units(self, pattern: Pattern, key: tuple[object, ...], row: Array) -> tuple[float, ...]:
        """What one of the numbers of layers is for a unit of each run."""
        return self.once_shared(
            (*key, pattern.runs), lambda: tuple(float(row[list(run.units[0])].sum()) for run in pattern.runs)
        )

    def crossing(self, pattern: Pattern, candidate: int) -> tuple[float, ...]:
        """Bytes that cross each border between two chunks."""
        used = self.instance.candidates[candidate]

        def made() -> tuple[float, ...]:
            return tuple(border_bytes(self.instance, (used,), pattern.borders)[0].tolist())

        return self.once_shared(("borders", pattern, candidate), made)

    def _contents(self, configuration: Configuration, count: int) -> Contents:
        """What the stages of all patterns may hold."""
        runs = self.splits.runs
        if prod(len(run.units) + 1 for run in runs) <= MOST_CONTENTS and not self.instance.space.even:
            heads = [self._heads(run) for run in runs]
            return self.once_scheduled("contents", lambda: self._contents_of(map(sum, product(*heads))))
        homes = self.splits.homes(configuration.schedule, count)
        patterns = self.splits.of(configuration.schedule, count)
        return self.once_scheduled(("contents", homes), lambda: self._contents_of(self._held_by(patterns, homes)))

    def _contents_of(self, masks: Iterator[int]) -> Contents:
        layers = len(self.instance.graph.layers)
        distinct = list(dict.fromkeys(masks))
        return Contents(
            {mask: place for place, mask in enumerate(distinct)}, star(membership(distinct, layers), layers)
        )

    def _held_by(self, patterns: Sequence[Pattern], homes: tuple[int, ...]) -> Iterator[int]:
        """What the stages of these patterns may hold, as bitmasks."""
        for pattern in patterns:
            heads = [self._heads(run) for run in pattern.runs]
            for chunks in chunks_of_stages(homes):
                held = Share.of(pattern, chunks)
                fixed = [sum(row[run] for row in held.fixed) for run in range(len(heads))]
                ranges = zip(heads, fixed, held.most(pattern.slack), strict=True)
                yield from map(sum, product(*(head[own : own + most + 1] for head, own, most in ranges)))

    def _stage_tables(self, configuration: Configuration, contents: Contents) -> tuple[StageTables, ChoiceTable]:
        """What the contents cost with each choice, and the same in one table."""
        hides = self.instance.space.hides(configuration.schedule.name)
        key = (
            contents,
            *configuration.members,
            configuration.replicas,
            configuration.rank_order,
            configuration.zero_degree,
            configuration.copies,
            self.parted(configuration),
            hides,
        )
        known = self._tables

        def made() -> tuple[StageTables, ChoiceTable]:
            sums, parts = self._sums(configuration, contents)
            tables = stage_tables(
                self.instance,
                configuration,
                sums,
                contents.sets.pairs,
                configuration.choices,
                part_sums=parts,
                every_choice=True,
            )
            return tables, ChoiceTable.stacked(tables.tables)

        if key not in known:
            known[key] = made()
        known.move_to_end(key)
        if len(known) > REMEMBERED:
            known.popitem(last=False)
        return known[key]

    def _sums(self, configuration: Configuration, contents: Contents) -> tuple[CandidateSums, PartSums | None]:
        candidate = self.instance.candidates[configuration.candidate]
        shared = (contents, configuration.candidate)
        # What is kept of inputs depends on the chunks that a stage has.
        sums = self.once_shared(
            ("sums", *shared),
            lambda: evolve(
                candidate_sums(self.instance, candidate, contents.sets), cut=numpy.zeros(contents.sets.count)
            ),
        )
        if not self.parted(configuration):
            return sums, None
        return sums, self.once_shared(("parts", *shared), lambda: part_sums(candidate, contents.sets))

    def _floor(
        self,
        configuration: Configuration,
        count: int,
        pattern: Pattern,
        stages: Sequence[tuple[StagePrices, NDArray[numpy.bool_] | None]],
    ) -> Floor:
        """Bounds of the three terms, every boundary at its cheapest; `stages` with what fits, None where all does."""
        candidate, weights = configuration.candidate, self.apart(configuration, count)
        seconds = numpy.array(self._seconds(pattern, candidate))
        worth = seconds
        if weights is not None:
            rows = part_rows(self.instance.candidates[candidate])
            parts = (self._of_units(pattern, ("part", candidate, index), row) for index, row in enumerate(rows))
            worth = weights.of_parts(*(numpy.array(each) for each in parts))
        slack = numpy.array(pattern.slack, dtype=numpy.float64)
        known = {(id(prices), id(fits)): least_of(prices, fits, seconds, worth) for prices, fits in stages}
        every = [known[id(prices), id(fits)] for prices, fits in stages]
        total = float(slack @ worth) + sum(least for _, _, least in every)
        needed = float(slack @ seconds) * (1 - LIMIT_SLACK)
        times, syncs = [time for time, _, _ in every], [sync for _, sync, _ in every]
        return Floor(least_largest(times, needed), total, least_largest(syncs, needed))
