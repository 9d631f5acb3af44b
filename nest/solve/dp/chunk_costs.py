"""Patterns with their stages: possible contents of stages of several chunks, their costs, and bounds on step times."""

from collections.abc import Iterator, Sequence
from itertools import product
from math import inf
from typing import Any

import numpy
from attrs import define, evolve, field, frozen
from numpy.typing import NDArray

from nest.instance import Array
from nest.reuse import BoundedCache
from nest.solve.dp.choices import part_rows
from nest.solve.dp.chunk_memory import Counts, Held, Share, chunks_of_stages
from nest.solve.dp.chunk_parts import Laid, Spread, beyond_one
from nest.solve.dp.chunk_stages import ChunkStage, Message, PatternStages, StageCosts, StagePrices, floor_of
from nest.solve.dp.chunk_tables import REMEMBERED, ChunkTables, heads_of, of_units
from nest.solve.dp.configurations import Configuration
from nest.solve.dp.pareto import Floor
from nest.solve.dp.units import Pattern, Run
from nest.tolerances import LIMIT_SLACK, SEARCHED_MEMORY_SLACK

PATTERN_STATES = 20_000  # Search states that take as long as pricing the stages of a pattern.
PATTERNS_REMEMBERED = 1_024  # Patterns whose stages are kept.


@frozen(eq=False, repr=False)
class Filled:
    """A pattern with the stages of a configuration."""

    pattern: Pattern  # Starts and ends of runs of units.
    stages: tuple[ChunkStage, ...]  # In pipeline order.
    held: tuple[Held, ...]  # Micro-batches of each stage's chunks.
    costs: StageCosts  # Choices of each stage with their costs.
    floor: Floor  # Bounds of the three terms of the step time, with the cheapest boundaries.
    bound: float  # Of the step time, seconds.

    @property
    def ports(self) -> bool:
        """True if ports may delay some stages."""
        return any(stage.prices.table.ports is not None for stage in self.stages)


@define(eq=False, repr=False)
class ChunkCosts(ChunkTables):
    """Costs of plans of several chunks per stage."""

    _filled: BoundedCache[tuple[float, tuple[Filled, ...]]] = field(
        factory=lambda: BoundedCache(REMEMBERED), init=False
    )

    def filled(self, configuration: Configuration, count: int, limit: float | None) -> tuple[Filled, ...]:
        """Patterns that may beat `limit`, with stages and bounds; None: as far as known."""
        key = (configuration.order, count)
        known = self._filled.get(key)
        if known is not None and (limit is None or limit <= known[0]):
            return known[1]
        most = inf if limit is None else limit
        found = tuple(each for each in self._fill(configuration, count, most) if each.bound <= most)
        return self._filled.keep(key, (most, found))[1]

    def _fill(
        self, configuration: Configuration, count: int, limit: float, *, exactly: bool = False
    ) -> Iterator[Filled]:
        """Yield patterns that compute alone does not exclude; `exactly` computes needs, not only whether they fit."""
        patterns = self.splits.of(configuration.schedule, count)
        if not patterns or not self.choices(configuration, count):
            return
        costs = self._costs(configuration, count, patterns[0].runs)
        longest = costs.objective.time_limit(limit, self.least_rest(configuration, count))
        slowest = self._fixed_units(configuration, count) @ numpy.array(costs.seconds)
        for pattern, seconds in zip(patterns, slowest.max(axis=1).tolist(), strict=True):
            if seconds <= longest:
                filled = self._filled_pattern(configuration, count, pattern, costs, longest, limit, exactly=exactly)
                if filled is not None:
                    yield from self._told_apart(filled, exactly=exactly)

    def _told_apart(self, filled: Filled, *, exactly: bool) -> Iterator[Filled]:
        """Split by mode, if all stages must share one."""
        names = list(dict.fromkeys(choice.recompute for choice in filled.costs.choices))
        if len(names) == 1 or all(each.uniform != "recompute" for each in self.instance.space.constraints):
            yield filled
            return
        for name in names:
            some = numpy.array([choice.recompute == name for choice in filled.costs.choices])
            own = {each: each.only(some) for each in dict.fromkeys(filled.stages)}
            if exactly or all(each.fits.any() for each in own.values()):
                stages = tuple(own[each] for each in filled.stages)
                yield evolve(filled, stages=stages, **_bounds(filled.costs, filled.pattern, stages))

    def _costs(self, configuration: Configuration, count: int, runs: tuple[Run, ...]) -> StageCosts:
        candidate, contents = configuration.candidate, self._contents(configuration, count)
        whole, parts = self._choices(configuration, count, runs)
        unchosen, table = self._stage_tables(configuration, contents, whole)
        weights, seconds = self.apart(configuration, count), self._seconds(runs, candidate)
        worth = numpy.array(seconds)
        if weights is not None:
            rows = part_rows(self.instance.candidates[candidate])
            of_parts = (of_units(runs, row) for row in rows)
            worth = weights.of_parts(*(numpy.array(each) for each in of_parts))
        names = [choice.recompute for choice in whole]
        return StageCosts(
            contents,
            self.choices(configuration, count),
            self.instance.cluster.memory * (1 + SEARCHED_MEMORY_SLACK),
            unchosen,
            table,
            tuple((zero, pair) for zero, pair, _ in parts),
            self._layouts(runs),
            self.objective(configuration, count),
            weights,
            self.slots(configuration).levels,
            [heads_of(run) for run in runs],
            seconds,
            worth,
            {name: [index for index, other in enumerate(names) if other == name] for name in names},
            {name: self.more(runs, candidate, name) for name in names},
        )

    def _fixed_units(self, configuration: Configuration, count: int) -> NDArray[numpy.int64]:
        """Least units of each run that stages hold. Shape `(patterns, stages, runs)`."""
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
        """Fill a pattern with stages that compute for at most `longest` seconds; None: it cannot beat `limit`."""
        crossing = self.crossing(pattern, configuration.candidate)
        self.meter.count(PATTERN_STATES)
        laid, slack = self._pattern_stages(configuration, count, pattern, crossing), pattern.slack
        links = [self.instance.cluster.levels[level] for level in costs.levels]
        sent = {size: [link.latency + size / link.bandwidth for link in links] for size in dict.fromkeys(crossing)}
        # What recomputes all blocks of every chunk is left to a whole mode, where one does the same.
        told = self._longest(pattern) - all(pair.covered for _, pair in costs.parts) if costs.parts else 0
        prices = [
            self._prices(costs, share, told, fixed, most, received, sent, longest)
            for share, fixed, most, received in zip(laid.distinct, laid.fixed, laid.most, laid.received, strict=True)
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
        stages = tuple(every[number] for number in laid.alike)
        return Filled(pattern, stages, laid.held, costs, **_bounds(costs, pattern, stages))

    def _stage(
        self, costs: StageCosts, held: Held, prices: StagePrices, stashed: tuple[float, ...], *, exactly: bool
    ) -> ChunkStage:
        def made() -> ChunkStage:
            memory = self._memory(costs, held, prices, stashed, exactly=exactly)
            fits = memory <= costs.capacity
            room = memory.tobytes() if exactly else fits.tobytes()
            return costs.once((prices, room), lambda: ChunkStage(prices, memory, fits))

        return costs.once((prices, held.share, held.moments, stashed), made)

    def _pattern_stages(
        self, configuration: Configuration, count: int, pattern: Pattern, crossing: tuple[float, ...]
    ) -> PatternStages:
        known: BoundedCache[PatternStages]
        known = self.once_scheduled("pattern stages", lambda: BoundedCache(PATTERNS_REMEMBERED))

        def made() -> PatternStages:
            homes = self.splits.homes(configuration.schedule, count)
            moments = [self.moments(configuration, count, stage) for stage in range(count)]
            return PatternStages.of(pattern, homes, crossing, moments)

        return known.of((pattern, crossing, *configuration.scheduled, count), made)

    def _prices(
        self,
        costs: StageCosts,
        share: Share,
        told: int,
        fixed: Counts,
        most: Counts,
        received: tuple[Message, ...],
        sent: dict[float, list[float]],
        longest: float,
    ) -> StagePrices:
        """Times of a stage with any contents that computes for at most `longest` seconds."""
        left = longest * (1 + LIMIT_SLACK) - sum([n * each for n, each in zip(fixed, costs.seconds, strict=True)])
        ranges = [
            range(max(min(many, int(left / each)) if each > 0 and left < inf else many, 0) + 1) if many else (0,)
            for many, each in zip(most, costs.seconds, strict=True)
        ]
        # What first blocks are recomputed is said by what each chunk holds.
        held = (share, told) if costs.parts else fixed
        return costs.once(
            (held, received, *ranges), lambda: self._priced(costs, share, told, fixed, received, sent, ranges)
        )

    def _priced(
        self,
        costs: StageCosts,
        share: Share,
        told: int,
        fixed: Counts,
        received: tuple[Message, ...],
        sent: dict[float, list[float]],
        ranges: Sequence[Sequence[int]],
    ) -> StagePrices:
        """Same for these numbers of units of each run beyond the fixed ones."""
        if costs.parts:
            laid, points = Laid.within(costs.layouts(share, told), told, fixed, ranges)
            further = tuple(points)
        else:
            laid, further = None, tuple(product(*ranges))
        first = sum([head[own] for head, own in zip(costs.heads, fixed, strict=True)])
        masks = [first] * len(further)
        for run, head in enumerate(costs.heads):
            if len(ranges[run]) > 1:
                own = fixed[run]
                masks = [mask + head[own + n[run]] - head[own] for mask, n in zip(masks, further, strict=True)]
        columns = numpy.array([costs.contents.places[mask] for mask in masks])
        return StagePrices(further, costs.at(columns, laid), received, sent, costs.levels, costs.weights, laid)

    def _memory(
        self, costs: StageCosts, held: Held, prices: StagePrices, stashed: Sequence[float], *, exactly: bool
    ) -> Array:
        """Bytes of a stage with each choice and the least placement of units. Shape `(choices, points)`.

        Unless wanted exactly, only the comparison with the capacity is right.
        """
        memory, capacity, several = numpy.empty(prices.table.first.shape), costs.capacity, len(held.moments) > 1
        grown = held.grown(prices.counts)
        for name, rows in costs.rows.items():
            more, stashes = costs.more[name]
            kept = stashed if stashes else [0.0] * len(stashed)
            least, most = held.between(grown, more, kept)
            first = prices.table.first[rows]
            memory[rows] = first + least
            if not several:
                continue
            fits = first + most <= capacity
            open_ = numpy.isfinite(first) if exactly else ~fits & (first + least <= capacity)
            if not open_.any():
                continue
            for point in numpy.flatnonzero(open_.any(axis=0)).tolist():
                needed = held.needed(prices.further[point], more, held.base(more, kept))[0]
                memory[rows, point] = numpy.where(open_[:, point], first[:, point] + needed, memory[rows, point])
        if prices.laid is not None:
            self._memory_of_parts(memory, costs, held, prices, stashed, exactly=exactly)
        return memory

    def _memory_of_parts(
        self,
        memory: Array,
        costs: StageCosts,
        held: Held,
        prices: StagePrices,
        stashed: Sequence[float],
        *,
        exactly: bool,
    ) -> None:
        """Fill in choices that recompute first blocks; pure modes need one point with the same units."""
        laid, capacity = prices.laid, costs.capacity
        assert laid is not None
        every = list(costs.rows_of_parts())
        memory[: every[0][1].start, laid.repeated] = inf
        beyond = {pair: beyond_one(pair, laid, held, stashed) for pair, _ in every}
        for pair, rows in every:
            first, (least, even, _) = prices.table.first[rows], beyond[pair]
            memory[rows] = first + least
            whole = {each.zero for each in costs.choices if each.recompute == costs.choices[rows.start].modes[0]}
            repeated = numpy.array([each.zero in whole for each in costs.choices[rows.start : rows.stop]])
            memory[rows][(pair.numbers > laid.most) & repeated] = inf
            if len(held.moments) == 1:
                continue
            open_ = numpy.isfinite(memory[rows])
            if not exactly:
                open_ &= (first + even > capacity) & (first + least <= capacity)
            for choice, point in zip(*(each.tolist() for each in numpy.nonzero(open_)), strict=True):
                needed = pair.spread(laid, held, stashed, choice, point).needed()
                memory[rows.start + choice, point] = first[choice, point] + needed

    def spread(
        self, configuration: Configuration, filled: Filled, stage: int, choice: int, point: int
    ) -> tuple[Spread, float]:
        """Possible placements of a stage's units in its chunks, and bytes of micro-batches beyond the first."""
        costs, held, prices = filled.costs, filled.held[stage], filled.stages[stage].prices
        room, stashed = (
            costs.capacity - float(prices.table.first[choice, point]),
            self.stashed(configuration, filled)[stage],
        )
        for pair, rows in costs.rows_of_parts():
            if rows.start <= choice < rows.stop:
                assert prices.laid is not None
                return pair.spread(prices.laid, held, stashed, choice - rows.start, point), room
        more, stashes = costs.more[costs.choices[choice].recompute]
        return Spread(held, prices.further[point], more, stashed if stashes else [0.0] * len(stashed)), room

    def stashed(self, configuration: Configuration, filled: Filled) -> list[list[float]]:
        """Bytes of stashed inputs by stage and chunk."""
        entering = (0.0, *self.crossing(filled.pattern, configuration.candidate))
        homes = self.splits.homes(configuration.schedule, len(filled.stages))
        return [[entering[chunk] for chunk in mine] for mine in chunks_of_stages(homes)]


def _bounds(costs: StageCosts, pattern: Pattern, stages: Sequence[ChunkStage]) -> dict[str, Any]:
    distinct = list(dict.fromkeys(stages))
    least = [costs.least_of(stage.prices, stage.fits) for stage in distinct]
    floor = floor_of(costs, pattern.slack, least, [distinct.index(stage) for stage in stages])
    return {"floor": floor, "bound": costs.objective.of(floor) if floor.largest_time < inf else inf}
