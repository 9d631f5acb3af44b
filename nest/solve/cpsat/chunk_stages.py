"""What stages of several chunks can hold, whatever the chunks, and what that costs (PROBLEM.md section 4).

Most of a stage's cost depends on how many units of each class it holds: units are of one class where all that a
candidate says of their layers is equal. Such counts are a stage's content. Only messages and, where chunks hold
different numbers of micro-batches, activations depend on where the chunks begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise, product
from math import inf, prod

import numpy
from attrs import define, field, frozen

from nest.instance import Candidate, Instance, chunks_of, copies_of, fullest_moments, route
from nest.instance.schedule import Moment
from nest.solve.cpsat.bounds import least_times, levels, time_limit, value
from nest.solve.cpsat.cases import Case
from nest.solve.cpsat.cuts import Booleans, Floats, Integers, Units, chunk_units
from nest.solve.cpsat.path_model import TooManyChoicesError
from nest.solve.cpsat.paths import Paths, least
from nest.solve.cpsat.placement import point_to_point
from nest.solve.cpsat.stages import Parts, StageCosts, data_parallel_groups, priced
from nest.tolerances import LIMIT_SLACK, SUM_ERROR

MOST_CONTENTS = 20_000
"""Contents of a stage up to which they are listed: 32 blocks that are alike, with embedding and head, make 132."""

MOST_STATES = 1_500
"""Contents of all stages up to one, up to which a bound runs through them."""


@frozen(eq=False)
class Contents:
    """What a stage can hold, by classes of units.

    Attributes:
        units: what chunks are runs of.
        unit_class: the class of each unit. Shape `(units,)`.
        totals: units of each class. Shape `(classes,)`.
        counts: how many of each class a content has. Shape `(contents, classes)`.
        parts: what stages of each content are made of, their inputs aside.
        border_bytes: bytes that cross the border in front of each unit; none in front of the first. Shape `(units,)`.
        unit_more: by recompute mode, bytes of each unit's further micro-batches in flight. Shape `(units,)`.
    """

    units: Units
    unit_class: Integers
    totals: Integers
    counts: Integers
    parts: Parts
    border_bytes: Floats
    unit_more: dict[str, Floats]

    @classmethod
    def of(cls, instance: Instance, candidate: Candidate, units: Units, stages: int, chunks: int) -> Contents:
        """The contents of stages of so many chunks.

        Raises:
            TooManyChoicesError: there are too many.
        """
        unit_class = _classes(candidate, units)
        totals = numpy.bincount(unit_class)
        counts = _counts(unit_class, totals, chunks, len(units.layers) - (stages - 1) * chunks)
        examples = [list(units.layers[int((unit_class == each).argmax())]) for each in range(len(totals))]

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

        more = {
            mode.name: numpy.array([float(mode.more[list(layers)].sum()) for layers in units.layers])
            for mode in candidate.recompute
        }
        parts = Parts.of(candidate, sums, largest, numpy.zeros(len(counts)), numpy.zeros(1))
        return cls(units, unit_class, totals, counts, parts, _border_bytes(instance, candidate, units), more)

    @cached_property
    def between(self) -> Integers | None:
        """By two states, the content that a stage between them has, or the number of contents where it has none.

        A state says how many units of each class the stages so far hold. The first has none, the last all. None: there
        are too many. Shape `(states, states)`.
        """
        shape = tuple((self.totals + 1).tolist())
        if prod(shape) > MOST_STATES:
            return None
        states = numpy.array(list(product(*map(range, shape))), dtype=numpy.int64)
        place = numpy.full(shape, len(self.counts), dtype=numpy.int64)
        place[tuple(self.counts.T)] = numpy.arange(len(self.counts))
        ahead = (states[None, :, :] - states[:, None, :]).reshape(-1, len(shape))
        content = numpy.where((ahead >= 0).all(axis=1), place[tuple(numpy.maximum(ahead, 0).T)], len(self.counts))
        return content.reshape(len(states), len(states))


def _classes(candidate: Candidate, units: Units) -> Integers:
    """The class of each unit."""
    rows = [numpy.atleast_2d(array) for name, array in candidate.arrays() if name != "tensor_bytes"]
    found = candidate.finding_weight_gradients
    rows += [numpy.atleast_2d(each) for each in (found, candidate.busy) if each is not None]
    rows += [mode.busy for mode in candidate.recompute if mode.busy is not None]
    every = numpy.concatenate(rows)
    known: dict[bytes, int] = {}
    return numpy.array([known.setdefault(every[:, list(layers)].tobytes(), len(known)) for layers in units.layers])


def _counts(unit_class: Integers, totals: Integers, chunks: int, longest: int) -> Integers:
    """How many units of each class a stage of so many runs can hold, `longest` at most, in a fixed order.

    Where classes are few, every number of each is listed, whether there are such runs or not.

    Raises:
        TooManyChoicesError: they are too many.
    """
    shape = tuple((totals + 1).tolist())
    if prod(shape) <= MOST_CONTENTS:
        every = numpy.array(list(product(*map(range, shape))), dtype=numpy.int64)
        sums = every.sum(axis=1)
        listed: Integers = every[(sums >= chunks) & (sums <= longest)]
        return listed
    reached = {(0, (0,) * len(totals))}
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
    return numpy.array(found, dtype=numpy.int64).reshape(-1, len(totals))


def _border_bytes(instance: Instance, candidate: Candidate, units: Units) -> Floats:
    """Bytes that cross the border in front of each unit (`cut(D)` of PROBLEM.md section 4)."""
    home, total = units.home(len(instance.graph.layers)), numpy.zeros(len(units.layers))
    for (producer, consumers), size in zip(instance.graph.tensors, candidate.tensor_bytes, strict=True):
        # Made in one unit and read in later ones, a tensor crosses every border between.
        last = max((int(home[consumer]) for consumer in consumers), default=-1)
        total[int(home[producer]) + 1 : last + 1] += size
    return total


@frozen(eq=False)
class Sending:
    """A boundary between two chunks that are on different stages.

    Attributes:
        number: its place among all boundaries, from 0.
        earlier: the stage in front, which gradients return to.
        later: the stage behind, at which activations arrive.
    """

    number: int
    earlier: int
    later: int


def sendings(case: Case) -> list[Sending]:
    """The boundaries of a case at which something is sent."""
    between = enumerate(pairwise(route(case.schedule, case.stages)))
    return [Sending(number, one, two) for number, (one, two) in between if one != two]


@frozen(eq=False)
class ChunkChoices:
    """What a stage can be; a row is one choice.

    Attributes:
        content: index of its content.
        mode: row of the costs.
        time: seconds per micro-batch (`t`) at least.
        added: what it adds to the sum (`u`) at least.
        sync: seconds per batch as if there were no ports.
    """

    content: Integers
    mode: Integers
    time: Floats
    added: Floats
    sync: Floats

    def __len__(self) -> int:
        return len(self.content)

    def only(self, rows: Booleans) -> ChunkChoices:
        """Only these rows."""
        content, mode = self.content[rows], self.mode[rows]
        return ChunkChoices(content, mode, self.time[rows], self.added[rows], self.sync[rows])


@frozen(eq=False)
class ChunkCase:
    """One case of several chunks in numbers.

    Attributes:
        instance: the problem.
        case: the case.
        contents: of its stages.
        costs: of stages with each content, messages and stashed inputs aside; arrays of shape `(modes, contents)`.
        moments: for each stage, what its chunks hold at the moments that may be the fullest.
    """

    instance: Instance
    case: Case
    contents: Contents
    costs: StageCosts
    moments: tuple[tuple[Moment, ...], ...]

    @property
    def candidate(self) -> Candidate:
        """The candidate of all stages."""
        return self.instance.candidates[self.case.candidates[0]]

    def alike(self, stage: int, row: int) -> bool:
        """Whether a stage's memory in a mode follows from its content: all chunks hold as many, and no inputs."""
        moments, stash = self.moments[stage], self.candidate.mode(self.costs.modes[row][0]).stash_inputs
        return not stash and all(len(set(moment)) == 1 for moment in moments)

    def choices(self) -> list[ChunkChoices]:
        """For each stage what it can be, as far as its content alone tells."""
        room, rows = self.instance.cluster.memory * (1 + LIMIT_SLACK), self.costs.rows(self.case.modes[0])
        every = []
        cheapest, needed = self._cheapest(), numpy.array([self._needed(row, rows) for row in rows])
        for stage in range(self.case.stages):
            arriving = sum((seconds for each, seconds in cheapest if each.later == stage), 0.0)
            returning = sum((seconds for each, seconds in cheapest if each.earlier == stage), 0.0)
            fits = needed & numpy.array([self._memory(stage, row) <= room for row in rows])
            time, added = least_times(self.case, self.costs, (rows,), numpy.array(arriving), numpy.array(returning))
            which, content = numpy.nonzero(fits)
            mode = numpy.array(rows, dtype=numpy.int64)[which]
            every.append(
                ChunkChoices(content, mode, time[which, content], added[which, content], self.costs.sync[mode, content])
            )
        return every

    def _cheapest(self) -> list[tuple[Sending, float]]:
        """Each boundary with the seconds that what crosses it takes at least."""
        near = levels(self.instance, self.case)
        seconds = []
        for each in sendings(self.case):
            sizes = self.contents.border_bytes[list(self.contents.units.starts[each.number])]
            every = [float(point_to_point(self.instance.cluster, sizes, level).min()) for level in near]
            seconds.append((each, min(every, default=0.0)))
        return seconds

    def _memory(self, stage: int, row: int) -> Floats:
        """Bytes that a stage needs in a mode at least, by content."""
        moments, (name, _) = self.moments[stage], self.costs.modes[row]
        stash = numpy.zeros(1)
        if self.candidate.mode(name).stash_inputs:
            # In front of the first chunk of all there is nothing.
            stash = self.contents.border_bytes
        further = []
        for moment in moments:
            most = min(moment) - 1
            stashed = sum((held - 1) * float(stash.min() if held >= 1 else stash.max()) for held in moment)
            further.append(most * self.costs.more[row] + stashed)
        held: Floats = self.costs.one[row] + numpy.maximum.reduce(further)
        return held

    def _needed(self, row: int, rows: Sequence[int]) -> Booleans:
        """By content, where no other mode makes a mode needless."""
        needed = numpy.ones(len(self.contents.counts), dtype=bool)
        for other in rows:
            if other != row:
                needed &= ~self._needless(row, other)
        return needed

    def _needless(self, row: int, other: int) -> Booleans:
        """Where a mode is no faster than another one that never needs more memory."""
        mine, its = (self.candidate.mode(self.costs.modes[each][0]) for each in (row, other))
        never_more = bool((its.more <= mine.more).all()) and its.stash_inputs <= mine.stash_inputs
        # Where a chunk holds nothing at a fullest moment, less of each micro-batch is more of all.
        held = (min(moment) for moments in self.moments for moment in moments)
        if not never_more or (mine is not its and min(held) < 1):
            return numpy.zeros(len(self.contents.counts), dtype=bool)
        wins: Booleans = (self.costs.one[other] <= self.costs.one[row]) & self.costs.as_fast(other, row, self.case)
        if other > row:
            wins &= ~(self.costs.as_fast(row, other, self.case) & (self.costs.one[row] <= self.costs.one[other]))
        return wins

    def narrowed(self, target: float) -> tuple[list[ChunkChoices], float] | None:
        """The choices of plans below `target`, and seconds that no such plan takes less than; None: there are none."""
        choices, bound = self.choices(), 0.0
        if not all(map(len, choices)):
            return None
        between = self.contents.between
        if between is None:
            return self._narrowed_alone(choices, target)
        fewest, paths = sum(map(len, choices)) + 1, Paths((self.case.stages,))
        while sum(map(len, choices)) < fewest:
            fewest = sum(map(len, choices))
            times, added, syncs = (
                [(self._table(each, getattr(each, name)),) for each in choices] for name in ("time", "added", "sync")
            )
            before, after = paths.forward(added), paths.backward(added)
            total, sync = least(before[-1]), paths.least(syncs, numpy.maximum)
            if total == inf:
                return None
            slowest = max(paths.least(times, numpy.maximum), paths.least(times) / self.case.stages)
            bound = max(bound, value(self.case, slowest, total, sync))
            if bound > target:
                return None
            limit = time_limit(self.case, target, total, sync)
            for stage, each in enumerate(choices):
                (front,), (rear,) = before[stage].values(), after[stage + 1].values()
                through = (front[:, None] + rear[None, :]).ravel()
                around = numpy.full(len(self.contents.counts) + 1, inf)
                numpy.minimum.at(around, between.ravel(), through)
                batch = around[each.content] + each.added
                reached = numpy.isfinite(batch)
                batch = numpy.where(reached, batch, 0.0) + numpy.maximum(sync, each.sync)
                batch += self.case.weights.slowest * numpy.maximum(slowest, each.time)
                choices[stage] = each.only(reached & (each.time <= limit) & (batch * (1 - SUM_ERROR) <= target))
        return choices, bound

    def _table(self, choices: ChunkChoices, values: Floats) -> Floats:
        """The least value by the states before and after a stage; infinite where no choice is left."""
        least = numpy.full(len(self.contents.counts) + 1, inf)
        numpy.minimum.at(least, choices.content, values)
        table: Floats = least[self.contents.between]
        return table

    def _narrowed_alone(
        self, choices: Sequence[ChunkChoices], target: float
    ) -> tuple[list[ChunkChoices], float] | None:
        """As `narrowed`, of each stage by itself."""
        total = sum(float(each.added.min()) for each in choices)
        slowest, sync = (max(float(getattr(each, name).min()) for each in choices) for name in ("time", "sync"))
        bound = value(self.case, slowest, total, sync)
        if bound > target:
            return None
        limit = time_limit(self.case, target, total, sync)
        left = [each.only(each.time <= limit) for each in choices]
        return (left, bound) if all(map(len, left)) else None


@define(eq=False)
class ChunkCases:
    """The numbers of cases, worked out once for what they share.

    Attributes:
        instance: the problem.
    """

    instance: Instance
    _units: dict[int, Units | None] = field(factory=dict)
    _contents: dict[tuple[int, int, int], Contents] = field(factory=dict)
    _costs: dict[object, StageCosts] = field(factory=dict)
    _moments: dict[object, tuple[tuple[Moment, ...], ...]] = field(factory=dict)

    def of(self, case: Case) -> ChunkCase:
        """The numbers of a case.

        Raises:
            TooManyChoicesError: its stages can hold too many sets of units.
        """
        (candidate,), chunks = case.candidates, chunks_of(case.schedule)
        parts, key = case.stages * chunks, (candidate, case.stages, chunks)
        if parts not in self._units:
            self._units[parts] = chunk_units(self.instance, parts)
        units = self._units[parts]
        assert units is not None, "cases have numbers of stages with chunks only"
        if key not in self._contents:
            used = self.instance.candidates[candidate]
            self._contents[key] = Contents.of(self.instance, used, units, case.stages, chunks)
        contents, copies = self._contents[key], copies_of(case.schedule)
        groups = data_parallel_groups(self.instance, case, candidate)
        if (key, groups, copies) not in self._costs:
            self._costs[key, groups, copies] = priced(self.instance, contents.parts, groups, copies)
        return ChunkCase(self.instance, case, contents, self._costs[key, groups, copies], self._moments_of(case))

    def _moments_of(self, case: Case) -> tuple[tuple[Moment, ...], ...]:
        """Those of all stages: schedules may run through their order of passes to find them."""
        schedule, stages, count = case.schedule, case.stages, case.micro_batches
        key = (schedule.name, chunks_of(schedule), stages, count)
        if key not in self._moments:
            every = (fullest_moments(schedule, stage, stages, count) for stage in range(1, stages + 1))
            self._moments[key] = tuple(tuple(dict.fromkeys(moments)) for moments in every)
        return self._moments[key]
