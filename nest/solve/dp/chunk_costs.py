"""Patterns with their stages: what stages of several chunks may hold, what that costs, and bounds on step times."""

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from itertools import accumulate, product
from math import inf, prod

import numpy
from attrs import define, field, frozen
from numpy.typing import NDArray

from nest.instance import Array
from nest.solve.dp.choices import ChoiceTable, part_rows
from nest.solve.dp.chunk_bounds import ChunkBounds
from nest.solve.dp.chunk_memory import Held, PatternStages, Share, chunks_of_stages
from nest.solve.dp.chunk_stages import ChunkStage, Contents, Counts, Message, StageCosts, StagePrices, floor_of
from nest.solve.dp.configurations import Configuration
from nest.solve.dp.downsets import membership
from nest.solve.dp.pareto import Floor
from nest.solve.dp.stages import StageTables, stage_tables
from nest.solve.dp.sums import CandidateSums, PartSums, candidate_sums, part_sums
from nest.solve.dp.units import Pattern, Run, border_bytes, mask_of, star
from nest.tolerances import LIMIT_SLACK

MOST_CONTENTS = 4_096
"""Sets of units up to which what they cost is worked out for all numbers of stages at once."""

PATTERN_STATES = 20_000
"""States of other searches that take as long as it takes to work out what the stages of a pattern cost."""

REMEMBERED, PATTERNS_REMEMBERED = 128, 1_024
"""Tables kept, and numbers of stages of configurations whose stages are kept; and patterns whose stages are."""


@frozen(eq=False, repr=False)
class Filled:
    """A pattern with the stages of a configuration.

    Attributes:
        pattern: where runs of units begin and end.
        stages: in pipeline order.
        held: of each what its chunks hold.
        costs: what each may choose and what that costs.
        floor: bounds of the three terms of the step time, with every boundary at its cheapest.
        bound: of the step time, seconds.
    """

    pattern: Pattern
    stages: tuple[ChunkStage, ...]
    held: tuple[Held, ...]
    costs: StageCosts
    floor: Floor
    bound: float


@define(eq=False, repr=False)
class ChunkCosts(ChunkBounds):
    """What plans of several chunks a stage cost."""

    _filled: OrderedDict[tuple[int, int], tuple[float, tuple[Filled, ...]]] = field(factory=OrderedDict, init=False)

    @property
    def _tables(self) -> OrderedDict[Hashable, tuple[StageTables, ChoiceTable]]:
        return self.once_in_room(self.shared, "tables", OrderedDict)

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
        if not patterns:
            return
        costs = self._costs(configuration, count, patterns[0].runs)
        longest = costs.objective.time_limit(limit, self.least_rest(configuration, count))
        slowest = self._fixed_units(configuration, count) @ numpy.array(costs.seconds)
        for pattern, seconds in zip(patterns, slowest.max(axis=1).tolist(), strict=True):
            if seconds <= longest:
                filled = self._filled_pattern(configuration, count, pattern, costs, longest, limit, exactly=exactly)
                if filled is not None:
                    yield filled

    def _costs(self, configuration: Configuration, count: int, runs: tuple[Run, ...]) -> StageCosts:
        candidate, contents = configuration.candidate, self._contents(configuration, count)
        tables, table = self._stage_tables(configuration, contents)
        weights, seconds = self.apart(configuration, count), self._seconds(runs, candidate)
        worth = numpy.array(seconds)
        if weights is not None:
            rows = part_rows(self.instance.candidates[candidate])
            parts = (self._of_units(runs, ("part", candidate, index), row) for index, row in enumerate(rows))
            worth = weights.of_parts(*(numpy.array(each) for each in parts))
        names = [choice.recompute for choice in tables.choices]
        return StageCosts(
            contents,
            tables,
            table,
            self.objective(configuration, count),
            weights,
            self.slots(configuration).levels,
            [self._heads(run) for run in runs],
            seconds,
            worth,
            {name: [index for index, other in enumerate(names) if other == name] for name in names},
            {name: self.more(runs, candidate, name) for name in names},
        )

    def _fixed_units(self, configuration: Configuration, count: int) -> NDArray[numpy.int64]:
        """Units of each run that stages hold at least, of each pattern. Shape `(patterns, stages, runs)`."""
        homes = self.splits.homes(configuration.schedule, count)

        def made() -> NDArray[numpy.int64]:
            patterns = self.splits.of(configuration.schedule, count)
            found = numpy.zeros((len(patterns), count, len(patterns[0].runs)), dtype=numpy.int64)
            for rows, pattern in zip(found, patterns, strict=True):
                for chunk, home in enumerate(homes):
                    rows[home] += pattern.fixed(chunk)
            return found

        return self.once_scheduled(("fixed", homes), made)

    def _filled_pattern(
        self,
        configuration: Configuration,
        count: int,
        pattern: Pattern,
        costs: StageCosts,
        longest: float,
        limit: float,
        *,
        exactly: bool,
    ) -> Filled | None:
        """A pattern with its stages that compute for `longest` seconds at most; None where it cannot beat `limit`."""
        crossing = self.crossing(pattern, configuration.candidate)
        self.meter.count(PATTERN_STATES)
        laid, slack = self._pattern_stages(configuration, count, pattern, crossing), pattern.slack
        links = [self.instance.cluster.levels[level] for level in costs.levels]
        sent = {size: [link.latency + size / link.bandwidth for link in links] for size in dict.fromkeys(crossing)}
        prices = [
            self._prices(costs, fixed, most, received, sent, longest)
            for fixed, most, received in zip(laid.fixed, laid.most, laid.received, strict=True)
        ]
        floor = floor_of(costs, slack, [costs.least_of(each) for each in prices], laid.kinds)
        if costs.objective.of(floor) > limit:
            return None
        every: dict[int, ChunkStage] = {}
        for kind, number, held, stashed in zip(laid.kinds, laid.alike, laid.held, laid.stashed, strict=True):
            if number not in every:
                stage = self._stage(costs, held, prices[kind], stashed, exactly=exactly)
                if not exactly and not stage.fits.any():
                    return None
                every[number] = stage
        distinct = list(dict.fromkeys(every.values()))
        stages = [every[number] for number in laid.alike]
        least = [costs.least_of(stage.prices, stage.fits) for stage in distinct]
        floor = floor_of(costs, slack, least, [distinct.index(stage) for stage in stages])
        bound = costs.objective.of(floor) if floor.largest_time < inf else inf
        return Filled(pattern, tuple(stages), laid.held, costs, floor, bound)

    def _stage(
        self, costs: StageCosts, held: Held, prices: StagePrices, stashed: tuple[float, ...], *, exactly: bool
    ) -> ChunkStage:
        """A stage of a pattern; what a stage needs matters as far as it fits, unless it is wanted exactly."""

        def made() -> ChunkStage:
            memory = self._memory(costs, held, prices, stashed, exactly=exactly)
            fits = memory <= costs.tables.capacity
            room = memory.tobytes() if exactly else fits.tobytes()
            return costs.once((prices, room), lambda: ChunkStage(prices, memory, fits))

        return costs.once((prices, held.share, held.moments, stashed), made)

    def _pattern_stages(
        self, configuration: Configuration, count: int, pattern: Pattern, crossing: tuple[float, ...]
    ) -> PatternStages:
        known: OrderedDict[Hashable, PatternStages] = self.once_scheduled("pattern stages", OrderedDict)
        key = (pattern, crossing, *configuration.scheduled, count)
        if key not in known:
            homes = self.splits.homes(configuration.schedule, count)
            moments = [self.moments(configuration, count, stage) for stage in range(count)]
            known[key] = PatternStages.of(pattern, homes, crossing, moments)
        known.move_to_end(key)
        if len(known) > PATTERNS_REMEMBERED:
            known.popitem(last=False)
        return known[key]

    def _prices(
        self,
        costs: StageCosts,
        fixed: Counts,
        most: Counts,
        received: tuple[Message, ...],
        sent: dict[float, list[float]],
        longest: float,
    ) -> StagePrices:
        """What a stage takes, whatever it holds, that computes for `longest` seconds at most."""
        left = longest * (1 + LIMIT_SLACK) - sum([n * each for n, each in zip(fixed, costs.seconds, strict=True)])
        ranges = [
            range(max(min(many, int(left / each)) if each > 0 and left < inf else many, 0) + 1) if many else (0,)
            for many, each in zip(most, costs.seconds, strict=True)
        ]
        return costs.once((fixed, received, *ranges), lambda: self._priced(costs, fixed, received, sent, ranges))

    def _priced(
        self,
        costs: StageCosts,
        fixed: Counts,
        received: tuple[Message, ...],
        sent: dict[float, list[float]],
        ranges: Sequence[Sequence[int]],
    ) -> StagePrices:
        """The same of so many units of each run beyond those fixed."""
        further = tuple(product(*ranges))
        first = sum([head[own] for head, own in zip(costs.heads, fixed, strict=True)])
        masks = [first] * len(further)
        for run, head in enumerate(costs.heads):
            if len(ranges[run]) > 1:
                own = fixed[run]
                masks = [mask + head[own + n[run]] - head[own] for mask, n in zip(masks, further, strict=True)]
        columns = numpy.array([costs.contents.places[mask] for mask in masks])
        table = costs.table.of_classes(columns)
        return StagePrices(further, columns, table, received, sent, costs.levels, costs.weights)

    def _heads(self, run: Run) -> tuple[int, ...]:
        """The first none, one, two, ... units of a run as bitmasks."""
        return self.once_scheduled(("heads", run), lambda: tuple(accumulate(map(mask_of, run.units), initial=0)))

    def _memory(
        self, costs: StageCosts, held: Held, prices: StagePrices, stashed: Sequence[float], *, exactly: bool
    ) -> Array:
        """Bytes of a stage with each choice where units lie in the chunks that need least. Shape `(choices, points)`.

        Unless they are wanted exactly, they are only as much above or below what devices have.
        """
        memory, capacity = numpy.empty(prices.table.first.shape), costs.tables.capacity
        grown = held.grown(prices.counts)
        for name, rows in costs.rows.items():
            more, stashes = costs.more[name]
            kept = stashed if stashes else [0.0] * len(stashed)
            least, most = held.between(grown, more, kept)
            first = prices.table.first[rows]
            memory[rows] = first + least
            if len(held.moments) == 1:
                continue
            fits = first + most <= capacity
            open_ = numpy.isfinite(first) if exactly else ~fits & (first + least <= capacity)
            if not open_.any():
                continue
            for point in numpy.flatnonzero(open_.any(axis=0)).tolist():
                needed = held.needed(prices.further[point], more, held.base(more, kept))[0]
                memory[rows, point] = numpy.where(open_[:, point], first[:, point] + needed, memory[rows, point])
        return memory

    def more(self, runs: tuple[Run, ...], candidate: int, name: str) -> tuple[tuple[float, ...], bool]:
        """Bytes of each further micro-batch of a unit of each run, and whether the inputs of chunks are kept too."""
        mode = self.instance.candidates[candidate].mode(name)
        return self._of_units(runs, ("more", candidate, name), mode.more), mode.stash_inputs

    def _seconds(self, runs: tuple[Run, ...], candidate: int) -> tuple[float, ...]:
        """Seconds per micro-batch that a unit of each run computes."""
        used = self.instance.candidates[candidate]
        return self._of_units(runs, ("seconds", candidate), used.forward + used.backward)

    def _of_units(self, runs: tuple[Run, ...], key: tuple[object, ...], row: Array) -> tuple[float, ...]:
        """What one of the numbers of layers is for a unit of each run."""
        return self.once_shared((*key, runs), lambda: tuple(float(row[list(run.units[0])].sum()) for run in runs))

    def crossing(self, pattern: Pattern, candidate: int) -> tuple[float, ...]:
        """Bytes that cross each border between two chunks."""
        used = self.instance.candidates[candidate]

        def same() -> bytes:
            # Candidates that send as much share their answers, whatever they cost.
            sizes = used.tensor_bytes.tobytes()
            return self.once_scheduled(("sizes", sizes), lambda: sizes)

        def made() -> tuple[float, ...]:
            return tuple(border_bytes(self.instance, (used,), pattern.borders)[0].tolist())

        return self.once_scheduled(("borders", pattern, self.once_shared(("sizes", candidate), same)), made)

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
            configuration.placed,
            configuration.zero_degree,
            configuration.copies,
            configuration.micro_batches,
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
            lambda: candidate_sums(self.instance, candidate, contents.sets)._replace(
                cut=numpy.zeros(contents.sets.count)
            ),
        )
        if not self.parted(configuration):
            return sums, None
        return sums, self.once_shared(("parts", *shared), lambda: part_sums(candidate, contents.sets))
