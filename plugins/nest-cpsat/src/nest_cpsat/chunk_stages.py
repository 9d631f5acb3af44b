"""Costs of stages of several chunks (PROBLEM.md section 4).

Most follow from a stage's content (`nest_cpsat.contents`). Only messages and, if chunks hold different numbers of
micro-batches, activations depend on the chunk borders.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf

import numpy
from attrs import define, field, frozen

from nest.instance import Candidate, Instance, chunks_of, copies_of, fullest_moments, partial, route
from nest.instance.schedule import Moment
from nest.reuse import BoundedCache
from nest.tolerances import LIMIT_SLACK, SUM_ERROR
from nest_cpsat.bounds import least_times, levels, time_limit, value
from nest_cpsat.cases import Case
from nest_cpsat.content_paths import ContentPaths, backward, forward
from nest_cpsat.contents import Contents, UnitBlocks, few_classes, unit_classes
from nest_cpsat.cuts import Booleans, Floats, Integers, Units, chunk_units
from nest_cpsat.first_blocks import pair_of, pairs_of
from nest_cpsat.kept import kept
from nest_cpsat.placement import point_to_point
from nest_cpsat.stages import DataParallelGroup, Parts, StageCosts, data_parallel_groups, priced, sharding


@frozen(eq=False)
class Sending:
    """Boundary number `number` (from 0) between two chunks on different stages."""

    number: int
    earlier: int  # Stage before it; gradients return to it.
    later: int  # Stage after it; activations arrive there.


def sendings(case: Case) -> list[Sending]:
    """Boundaries of a case that need a transfer."""
    between = enumerate(pairwise(route(case.schedule, case.stages)))
    return [Sending(number, one, two) for number, (one, two) in between if one != two]


@frozen(eq=False)
class ChunkChoices:
    """Choices of a stage; one per row."""

    content: Integers  # Index.
    mode: Integers  # Row of the costs.
    time: Floats  # Lower bound on seconds per micro-batch (`t`).
    added: Floats  # Lower bound on its part of the sum (`u`).
    sync: Floats  # Seconds per batch without ports.

    def __len__(self) -> int:
        return len(self.content)

    def of_contents(self, same: Integers, count: int) -> Booleans:
        """Mask of the contents that some choice has, whichever blocks are first (`Contents.same`)."""
        held = numpy.zeros(count, dtype=bool)
        held[same[self.content]] = True
        return held

    def least(self, same: Integers, count: int, values: Floats) -> Floats:
        """Least value by content over the choices; infinite for contents without one."""
        least = numpy.full(count, inf)
        numpy.minimum.at(least, same[self.content], values)
        return least

    def only(self, rows: Booleans) -> ChunkChoices:
        """Select rows."""
        content, mode = self.content[rows], self.mode[rows]
        return ChunkChoices(content, mode, self.time[rows], self.added[rows], self.sync[rows])


@frozen(eq=False)
class ChunkCase:
    """One case of several chunks in numbers."""

    instance: Instance
    case: Case
    units: Units
    contents: Contents  # Of its stages, perhaps with others.
    costs: StageCosts  # By mode and content, without messages and stashed inputs. Shape `(modes, contents)`.
    moments: tuple[tuple[Moment, ...], ...]  # By stage, micro-batches of its chunks at the possibly fullest moments.

    @property
    def candidate(self) -> Candidate:
        """Candidate of all stages."""
        return self.instance.candidates[self.case.candidates[0]]

    def alike(self, stage: int, row: int) -> bool:
        """True if a stage's memory in a mode follows from its content: equal chunks and no stashed inputs."""
        moments, stashes = self.moments[stage], self.contents.parts.recompute[self.costs.modes[row][0]]["stashes"]
        return not stashes.any() and all(len(set(moment)) == 1 for moment in moments)

    @property
    def rows(self) -> list[int]:
        """Allowed rows of the costs."""
        modes = self.case.modes[0]
        return self.costs.rows(tuple(dict.fromkeys((pair_of(recompute), zero) for recompute, zero in modes)))

    def counts(self, row: int) -> list[int]:
        """Numbers of first blocks per chunk that a stage with this row may recompute; empty: all blocks."""
        every = ((partial(name), (pair_of(name), zero)) for name, zero in self.case.modes[0])
        return sorted(part.layers for part, pair in every if part is not None and pair == self.costs.modes[row])

    def choices(self) -> list[ChunkChoices]:
        """Choices of each stage, as far as its content decides."""
        room, rows = self.instance.cluster.memory * (1 + LIMIT_SLACK), self.rows
        every, modes, known = [], numpy.array(rows, dtype=numpy.int64), {}
        cheapest, possible = self._cheapest(), possible_contents(self.case, self.units, self.contents)
        recomputed = numpy.array([self._first_blocks(row) for row in rows])
        for stage in range(self.case.stages):
            arriving = sum((seconds for each, seconds in cheapest if each.later == stage), 0.0)
            returning = sum((seconds for each, seconds in cheapest if each.earlier == stage), 0.0)
            if (arriving, returning) not in known:
                around = numpy.array(arriving), numpy.array(returning)
                known[arriving, returning] = least_times(self.case, self.costs, (rows,), *around)
            time, added = known[arriving, returning]
            which, content = numpy.nonzero(possible[stage] & recomputed & (self._memory(stage, rows) <= room))
            mode = modes[which]
            every.append(
                ChunkChoices(content, mode, time[which, content], added[which, content], self.costs.sync[mode, content])
            )
        return every

    def _first_blocks(self, row: int) -> Booleans:
        """Mask of contents with an allowed number of first blocks for this row. Shape `(contents,)`.

        For a given number of blocks, chunks of equal length have the most first blocks, the longest chunks the fewest.
        """
        counts, contents, chunks = self.counts(row), self.contents, chunks_of(self.case.schedule)
        first = contents.first.sum(axis=(1, 2))
        if not counts:
            whole: Booleans = numpy.equal(first, 0)
            return whole
        units, parts = numpy.array([unit for unit, _ in contents.blocks.places]), self.case.stages * chunks
        held = contents.counts @ numpy.array(
            [(units == (contents.unit_class == each).argmax()).sum() for each in range(len(contents.totals))]
        )
        longest = len(units)
        if contents.first.shape[2] == 1 and self.instance.space.partition is None:
            # Chunks differ by one block at most, but for the first and the last.
            longest = len(contents.layers) // max(parts - 2, 1) + 1
        fewest = held // longest * min(counts[0], longest) + numpy.minimum(counts[0], held % longest)
        each, more = held // chunks, held % chunks
        most = more * numpy.minimum(counts[-1], each + 1) + (chunks - more) * numpy.minimum(counts[-1], each)
        found: Booleans = (first >= fewest) & (first <= most)
        return found

    def _cheapest(self) -> list[tuple[Sending, float]]:
        sizes = self.contents.border_bytes
        every = [point_to_point(self.instance.cluster, sizes, level) for level in levels(self.instance, self.case)]
        seconds = numpy.minimum.reduce(every) if every else numpy.zeros(len(sizes))
        return [(each, float(seconds[list(self.units.starts[each.number])].min())) for each in sendings(self.case)]

    def _memory(self, stage: int, rows: Sequence[int]) -> Floats:
        """Lower bound on the bytes of a stage. Shape `(rows, contents)`."""
        # In front of the first chunk of all there is nothing.
        least, most = float(self.contents.border_bytes.min()), float(self.contents.border_bytes.max())
        stashes = numpy.array([[self.candidate.mode(self.costs.modes[row][0]).stash_inputs] for row in rows])
        counts = {
            (min(moment) - 1, sum((held - 1) * (least if held >= 1 else most) for held in moment))
            for moment in self.moments[stage]
        }
        if not stashes.any():
            # No layer keeps less than nothing, so that the moment with the most of its fewest is the fullest.
            counts = {max(counts)}
        more = self.costs.more[rows]
        further = [flying * more + numpy.where(stashes, stashed, 0.0) for flying, stashed in counts]
        held: Floats = self.costs.one[rows] + numpy.maximum.reduce(further)
        return held

    def needed(self, choices: ChunkChoices) -> ChunkChoices:
        """Drop dominated choices; bounds stay the same."""
        rows = self.rows
        table = numpy.zeros(self.costs.time.shape, dtype=bool)
        for row in rows:
            table[row] = self._needed(row, rows)
        return choices.only(table[choices.mode, choices.content])

    def _needed(self, row: int, rows: Sequence[int]) -> Booleans:
        needed = numpy.ones(len(self.contents.counts), dtype=bool)
        for other in rows:
            if other != row:
                needed &= ~self._needless(row, other)
        return needed

    def _needless(self, row: int, other: int) -> Booleans:
        """Mask of contents for which `other` is no slower than a mode and never needs more memory."""
        mine, its = (self.candidate.mode(self.costs.modes[each][0]) for each in (row, other))
        if mine is not its and (self.counts(row) or self.counts(other)):
            return numpy.zeros(len(self.contents.counts), dtype=bool)  # What they save differs from layer to layer.
        never_more = bool((its.more <= mine.more).all()) and its.stash_inputs <= mine.stash_inputs
        # Of replayed plans it matters which chunk takes longer, not the stage alone.
        never_more &= not self.case.replayed or bool((its.extra <= mine.extra).all())
        # Where a chunk holds nothing at a fullest moment, less of each micro-batch is more of all.
        held = (min(moment) for moments in self.moments for moment in moments)
        if not never_more or (mine is not its and min(held) < 1):
            return numpy.zeros(len(self.contents.counts), dtype=bool)
        wins: Booleans = (self.costs.one[other] <= self.costs.one[row]) & self.costs.as_fast(other, row, self.case)
        if other > row:
            wins &= ~(self.costs.as_fast(row, other, self.case) & (self.costs.one[row] <= self.costs.one[other]))
        return wins

    def narrowed(self, target: float) -> tuple[list[ChunkChoices], float] | None:
        """Choices of plans below `target`, with a lower bound (s) on these plans; None: there are none."""
        choices, bound = self.choices(), 0.0
        if not all(map(len, choices)):
            return None
        between = self.contents.between
        if between is None:
            return self._narrowed_alone(choices, target)
        fewest, count, same = sum(map(len, choices)) + 1, len(between) - 1, self.contents.same
        paths = ContentPaths.through(between, [each.of_contents(same, count) for each in choices])
        if paths is None:
            return None
        while sum(map(len, choices)) < fewest:
            fewest = sum(map(len, choices))
            times, added, syncs = (
                paths.steps([each.least(same, count, getattr(each, name)) for each in choices])
                for name in ("time", "added", "sync")
            )
            before, after = forward(added), backward(added)
            total, sync = float(before[-1].min()), float(forward(syncs, numpy.maximum)[-1].min())
            if total == inf:
                return None
            slowest = float(forward(times, numpy.maximum)[-1].min())
            slowest = max(slowest, float(forward(times)[-1].min()) / self.case.stages)
            bound = max(bound, value(self.case, slowest, total, sync))
            if bound > target:
                return None
            limit = time_limit(self.case, target, total, sync)
            for stage, each in enumerate(choices):
                around = paths.around(stage, before[stage], after[stage + 1], count)
                batch = around[same[each.content]] + each.added
                reached = numpy.isfinite(batch)
                batch = numpy.where(reached, batch, 0.0) + numpy.maximum(sync, each.sync)
                batch += self.case.weights.slowest * numpy.maximum(slowest, each.time)
                choices[stage] = each.only(reached & (each.time <= limit) & (batch * (1 - SUM_ERROR) <= target))
        return choices, bound

    def _narrowed_alone(
        self, choices: Sequence[ChunkChoices], target: float
    ) -> tuple[list[ChunkChoices], float] | None:
        total = sum(float(each.added.min()) for each in choices)
        slowest, sync = (max(float(getattr(each, name).min()) for each in choices) for name in ("time", "sync"))
        bound = value(self.case, slowest, total, sync)
        if bound > target:
            return None
        limit = time_limit(self.case, target, total, sync)
        left = [each.only(each.time <= limit) for each in choices]
        return (left, bound) if all(map(len, left)) else None


def possible_contents(case: Case, units: Units, contents: Contents) -> Booleans:
    """Possible contents of each stage for its possible chunk borders. Shape `(stages, contents)`.

    A stage holds no unit outside all its possible chunks, and each unit that no other stage can hold.
    """
    counts, starts = contents.counts, units.starts
    unit, home = numpy.arange(len(units.layers)), numpy.array(route(case.schedule, case.stages))
    first, last = (numpy.array(ends) for ends in ([0, *(s[0] for s in starts)], [*(s[-1] for s in starts), unit.size]))
    may = (unit >= first[:, None]) & (unit < last[:, None])
    held = numpy.array([may[home == stage].any(axis=0) for stage in range(case.stages)])
    alone = held & (held.sum(axis=0) == 1)
    classes = numpy.eye(len(contents.totals), dtype=numpy.int64)[contents.unit_class]
    most, fewest, sums = held @ classes, alone @ classes, counts.sum(axis=1)
    chunks = chunks_of(case.schedule)
    longest = len(units.layers) - (case.stages - 1) * chunks
    within = (counts <= most[:, None]).all(axis=2) & (counts >= fewest[:, None]).all(axis=2)
    possible: Booleans = within & (sums >= chunks) & (sums <= longest)
    return possible


@define(eq=False)
class ChunkCases:
    """Numbers of cases, sharing common work."""

    instance: Instance
    _units: dict[int, Units | None] = field(factory=dict)
    _classes: dict[object, tuple[UnitBlocks, Integers]] = field(factory=dict)
    _contents: BoundedCache[Contents] = field(factory=kept)
    _costs: BoundedCache[StageCosts] = field(factory=kept)
    _moments: dict[object, tuple[tuple[Moment, ...], ...]] = field(factory=dict)

    def of(self, case: Case) -> ChunkCase:
        """Numbers of a case.

        Raises:
            TooManyChoicesError: stages can hold too many sets of units.
        """
        self._contents.make_room()
        self._costs.make_room()
        (candidate,), chunks = case.candidates, chunks_of(case.schedule)
        parts = case.stages * chunks
        if parts not in self._units:
            self._units[parts] = chunk_units(self.instance, parts)
        units = self._units[parts]
        assert units is not None, "only cases with chunks have numbers of stages"
        used, copies = self.instance.candidates[candidate], copies_of(case.schedule)
        key: tuple[object, ...] = (candidate, units.layers)
        if key not in self._classes:
            blocks = UnitBlocks.of(self.instance, units)
            self._classes[key] = blocks, unit_classes(used, units, blocks.rank)
        blocks, classes = self._classes[key]
        if not few_classes(classes):
            # Else all cases of a candidate share contents and what they cost.
            key = (*key, case.stages, chunks)
        shared = self.instance, used, units, blocks, classes, case.stages, chunks
        contents = self._contents.of(key, lambda: Contents.of(*shared))
        pairs = [name for name in pairs_of(mode for mode, _ in case.modes[0]) if partial(name) is not None]
        if pairs:
            key, whole = (*key, case.stages, chunks, case.schedule.name, *pairs), contents
            contents = self._contents.of(
                key, lambda: whole.with_parts(used, pairs, possible_contents(case, units, whole))
            )
        groups = data_parallel_groups(self.instance, case, candidate)
        costs = self._costs.of((*key, groups, copies), lambda: self._priced(contents.parts, groups, copies))
        return ChunkCase(self.instance, case, units, contents, costs, self._moments_of(case))

    def _priced(self, parts: Parts, groups: tuple[DataParallelGroup, ...], copies: int) -> StageCosts:
        return priced(self.instance, parts, sharding(self.instance, parts, groups, copies))

    def _moments_of(self, case: Case) -> tuple[tuple[Moment, ...], ...]:
        """Moments of all stages; schedules may run through their passes to find them."""
        schedule, stages, count = case.schedule, case.stages, case.micro_batches
        key = (schedule.name, chunks_of(schedule), stages, count)
        if key not in self._moments:
            every = (fullest_moments(schedule, stage, stages, count) for stage in range(1, stages + 1))
            self._moments[key] = tuple(tuple(dict.fromkeys(moments)) for moments in every)
        return self._moments[key]
