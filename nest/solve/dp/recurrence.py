"""Recurrence `dp[l][D][k][s]` of PROBLEM.md section 6 for fixed numbers of replicas and stages.

Stages are counted from the end: `j - 1` others follow stage `j`, which fixes its micro-batches in flight, so memory is
checked inside. An entry is the least sum of stage times under a limit on each stage's time and gradient reduction.
Possible places of stages form a graph (`nest.solve.dp.places`): slots of one candidate's blocks, offsets of mixed
plans, slots of several pools, or of stages of several chunks. Places with the same future share entries.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, NamedTuple

import numpy
from attrs import define, field

from nest.instance import Array, Weights
from nest.solve.dp.fastest import Fastest, cheapest
from nest.solve.dp.members import Member, weighed_boundaries
from nest.solve.dp.pairs import Band, Pairs, Rows
from nest.solve.dp.pareto import Partition, PlacedStage
from nest.solve.dp.places import Graph, Place, SlotPlaces, Surroundings, Way, graph
from nest.solve.dp.stages import StageTables
from nest.solve.search import Meter

REMEMBERED_BYTES = 128 * 2**20
"""Most bytes of choices kept between runs: 200 different layers take 1.2 s with them, else 3.1."""


def cheapest_stage(
    pairs: Pairs,
    best: Fastest,
    behind: Array,
    front: Array,
    entering: tuple[int, int],
    future: Array,
    time_limit: float,
    slot: int,
    member: int = 0,
) -> tuple[float, int, PlacedStage]:
    """Stage from one downset on with the least sum with what follows, that sum, and the level behind.

    Args:
        behind: cost of a boundary behind, by level, shape `(levels, downsets)`.
        front: cost of a boundary in front.
        entering: downset, and level of the boundary in front.
        future: least cost of what follows, by level of the boundary behind and downset.
        time_limit: most seconds of a stage per micro-batch.
        slot: see `PlacedStage`.
        member: see `PlacedStage`.
    """
    larger, level_in = entering
    row = pairs.of_downset(larger)
    below = pairs.smaller[row]
    own = (pairs.spread(best.cost, row) + behind[:, below]) + front[level_in, larger]
    for level_out in range(len(own)):
        best.settle(own[level_out], row, level_out, level_in, time_limit)
    cost = own + future[:, below]
    level_out, column = (int(i) for i in numpy.unravel_index(cost.argmin(), cost.shape))
    pair, least = row.start + column, float(own[level_out, column])
    time, sync, choice = best.chosen(pair, pairs.class_of(pair), level_out, level_in, least, time_limit)
    placed = PlacedStage(larger, int(below[column]), slot, choice, least, time, sync, member)
    return float(cost[level_out, column]), level_out, placed


Costs = Callable[[int, int], Array]
"""Costs of stages between levels behind and in front: the last rows of their band's rectangle."""


class Step(NamedTuple):
    """Contribution of one stage to a chain."""

    # Least cost with what follows, between boundaries of rows behind and in front, by larger downset.
    least: Callable[[Array, int, int], Array]
    heads: Any  # Their places in such an array.
    size: int  # Number of stages.


Steps = Mapping[int, Sequence[Step]]  # Steps of each possible block of a stage.


def least_sums(
    count: int, margin: int, surroundings: Sequence[Iterable[Surroundings]], steps: Iterable[Steps], meter: Meter
) -> list[list[Array]]:
    """Least cost of what follows each stage by its surroundings, then of all; as far as limits allow.

    Args:
        count: number of downsets.
        margin: infinite places before these. Shape of each `(margin + count,)`.
        surroundings: of each stage, counted from the last.
        steps: of each stage.
    """
    end = numpy.full(margin + count, inf)
    end[margin] = 0.0
    every, alive = [[end]], [True]
    for own, of_blocks in zip(surroundings, steps, strict=False):
        known, entries, work = dict[tuple[int, int, int, Way], Array](), list[Array](), 0
        for block, row_in, ways in own:
            entry = numpy.full(margin + count, inf)
            for place, step in enumerate(of_blocks.get(block, ())):
                for way in ways:
                    # Surroundings have most of their ways in common.
                    key = block, place, row_in, way
                    if key not in known:
                        left = [each for each in way[1] if alive[each]]
                        if not left:
                            continue
                        known[key] = step.least(least_of(every[-1], left), way[0], row_in)
                        work += step.size
                    entry[step.heads] = numpy.minimum(entry[step.heads], known[key])
            entries.append(entry)
        meter.count(work)
        alive = [float(numpy.minimum.reduce(entry)) < inf for entry in entries]
        if not any(alive):
            break
        every.append(entries)
    return every


Choose = Callable[[int, Place, int, int, dict[int, Array]], tuple[int, int, PlacedStage]]
"""Finds the best stage, counted from the last, at a place, from a larger downset on behind a boundary of some row, by
the least cost of what follows over each row behind: that row, the smaller downset, and the stage."""


def recovered(placed: Graph, rests: Sequence[Sequence[Array]], whole: int, choose: Choose) -> Partition | None:
    """Stages behind the least entry; ties go to the first place, lowest row, smallest rest. None: none within limits.

    `rests` are those of `least_sums` without margin; `whole` is the largest downset.
    """
    if len(rests) <= placed.stages:
        return None
    some, larger, row, stages = placed.first(), whole, 0, list[PlacedStage]()
    for stage in range(placed.stages, 0, -1):
        entries = rests[stage]
        place, number = min(some, key=lambda each: float(entries[each[1]][larger]))
        if entries[number][larger] == inf:
            return None
        ways = {out: least_of(rests[stage - 1], numbers) for out, numbers in placed.surroundings[stage - 1][number][2]}
        out, larger, chosen = choose(stage, place, larger, row, ways)
        stages.append(chosen)
        if stage > 1:
            behind = [each for each in placed.following(place, stage) if each[0] == out]
            row, some = behind[0][1], [(place, number) for _, _, place, number in behind]
    return Partition(tuple(stages))


def least_of(arrays: Sequence[Array], places: Sequence[int] | None = None) -> Array:
    """Elementwise least of some arrays."""
    some = arrays if places is None else [arrays[place] for place in places]
    least: Array = some[0] if len(some) == 1 else numpy.minimum.reduce(some)
    return least


def line(tables: StageTables, stages: int, time_limit: float) -> list[tuple[int, int, int]] | None:
    """First and last larger downset of each stage, counted from the last, and the number between.

    No stage takes longer than `time_limit`; None: some stage has none. Only for stages in line.
    """
    pairs = tables.pairs
    first, last = tables.windows(stages, time_limit)
    begin, end = pairs.heads.searchsorted(first), pairs.heads.searchsorted(last + 1)
    if (begin >= end).any():
        return None
    ends = numpy.append(pairs.starts, len(pairs))
    heads = pairs.heads[begin].tolist(), pairs.heads[end - 1].tolist(), (ends[end] - ends[begin]).tolist()
    return list(zip(*heads, strict=True))


def line_steps(
    band: Band, heads: Iterable[tuple[int, int, int]], costs: Iterable[Costs], block: int = 0
) -> Iterator[Steps]:
    """Steps of a `line`, with a margin as long as the band has rows; `costs` are of each stage."""
    for cost, (first, last, size) in zip(costs, heads, strict=True):
        places = slice(band.widest + first, band.widest + last + 1)
        yield {block: [Step(partial(_least, band, cost, first, last), places, size)]}


def _least(band: Band, cost: Costs, first: int, last: int, after: Array, level_out: int, level_in: int) -> Array:
    own = band.columns(cost(level_out, level_in), first, last)
    least: Array = numpy.minimum.reduce(own + band.below(after, first, last)[band.widest - len(own) :])
    return least


def _within(cost: Array, time_limit: float) -> Array:
    """Costs within the limit; others become infinite, and leading rows without any are dropped."""
    if time_limit == inf:
        return cost
    own = numpy.where(cost > time_limit, inf, cost)
    return own[int((own < inf).any(axis=1).argmax()) :]


@define(eq=False, repr=False)
class Recurrence:
    """Recurrence for a fixed number of stages of one chunk.

    With one place for each stage it is the relaxation with the cheapest boundaries.
    """

    members: Sequence[Member]
    blocks: Sequence[int]  # Of each member: see `Places.at`.
    in_flight: tuple[float, ...]  # Micro-batches in flight of stage `j` from the end, at index `j - 1`.
    placed: Graph  # Possible places of stages.
    meter: Meter
    weights: Weights | None = None  # Separate weights of the schedule; None: the sum of the stages' times.
    _around: list[tuple[Array, Array]] = field(init=False)
    _best: dict[tuple[int, float], Fastest] = field(factory=dict, init=False)
    _best_limit: float = field(default=-1.0, init=False)

    @_around.default
    def _weighed_boundaries(self) -> list[tuple[Array, Array]]:
        return [weighed_boundaries(member.times, self.weights) for member in self.members]

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.in_flight)

    @property
    def bytes(self) -> int:
        """Memory of the entries."""
        return 8 * self.members[0].tables.pairs.count * sum(map(len, self.placed.surroundings))

    def _fastest(self, member: int, stage: int, sync_limit: float) -> Fastest:
        """Fastest choices of a member's stages, kept between runs with the same limit."""
        if self._best_limit != sync_limit:
            self._best.clear()
            self._best_limit = sync_limit
        used, flying = self.members[member], self.in_flight[stage - 1]
        key = member, used.tables.same_fits(flying)
        if key in self._best:
            return self._best[key]
        best = cheapest(used.tables, flying, sync_limit, used.times, used.levels, self.weights)
        if sum(each.bytes for each in (*self._best.values(), best)) <= REMEMBERED_BYTES:
            self._best[key] = best
        return best

    def _between(self, best: Fastest, band: Band, level_out: int, level_in: int) -> Array:
        """Costs of the only member's stages between boundaries of these levels, in a band's rectangle."""
        cells, (behind, front) = band.filled(self.members[0].tables.pairs.spread(best.cost)), self._around[0]
        first, last = band.first, band.first + band.heads - 1
        cells += band.below(band.padded(behind[level_out]), first, last)
        cells += front[level_in, first : last + 1]
        return cells

    def run(self, time_limit: float, sync_limit: float) -> Partition | None:
        """Partition and placement with the least sum of stage times; None: none keeps the limits.

        Args:
            time_limit: most seconds of a stage per micro-batch.
            sync_limit: most seconds of synchronisation per batch.
        """
        tables, margin, steps = self.members[0].tables, 0, self._gathered(time_limit, sync_limit)
        if len(self.members) == 1 and tables.in_line:
            every = [self._fastest(0, stage, sync_limit) for stage in range(1, self.stages + 1)]
            if all(best.settled for best in every):
                heads, band = line(tables, self.stages, time_limit), tables.pairs.band
                if heads is None or band is None:
                    return None
                costs = self._in_line(band, every, time_limit)
                margin, steps = band.widest, line_steps(band, heads, costs, self.blocks[0])
        count = tables.pairs.count
        rests = least_sums(count, margin, self.placed.surroundings, steps, self.meter)
        choose = partial(self._chosen, time_limit, sync_limit)
        return recovered(self.placed, [[rest[margin:] for rest in each] for each in rests], count - 1, choose)

    def _in_line(self, band: Band, every: Sequence[Fastest], time_limit: float) -> Iterator[Costs]:
        known = dict[tuple[Fastest, int, int], Array]()

        def cost(best: Fastest, level_out: int, level_in: int) -> Array:
            key = (best, level_out, level_in)
            if key not in known:
                known[key] = _within(self._between(best, band, level_out, level_in), time_limit)
            return known[key]

        return (partial(cost, best) for best in every)

    def _gathered(self, time_limit: float, sync_limit: float) -> Iterator[Steps]:
        """Steps of any stages, computed one by one."""
        for after in range(self.stages):
            steps: dict[int, list[Step]] = {}
            for place, (member, block) in enumerate(zip(self.members, self.blocks, strict=True)):
                rows = member.tables.window(after, self.stages - after - 1, time_limit)
                if len(rows):
                    best = self._fastest(place, after + 1, sync_limit)
                    least = partial(self._least, place, best, rows, time_limit, {})
                    steps.setdefault(block, []).append(Step(least, rows.heads, len(rows)))
            yield steps

    def _least(
        self,
        member: int,
        best: Fastest,
        rows: Rows,
        time_limit: float,
        known: dict[tuple[int, int], Array],
        after: Array,
        level_out: int,
        level_in: int,
    ) -> Array:
        """See `Step.least`; costs are cached between calls."""
        pairs, (behind, front) = self.members[member].tables.pairs, self._around[member]
        smaller = pairs.smaller[rows.pairs]
        if (level_out, level_in) not in known:
            cost = pairs.spread(best.cost, rows.pairs) + behind[level_out].take(smaller)
            cost += front[level_in].take(pairs.larger[rows.pairs])
            # The cheapest choice does: what a stage chooses changes nothing for the others.
            best.settle(cost, rows.pairs, level_out, level_in, time_limit)
            known[level_out, level_in] = cost
        least: Array = numpy.minimum.reduceat(known[level_out, level_in] + after.take(smaller), rows.starts)
        return least

    def _chosen(
        self,
        time_limit: float,
        sync_limit: float,
        stage: int,
        place: Place,
        larger: int,
        row: int,
        ways: dict[int, Array],
    ) -> tuple[int, int, PlacedStage]:
        block, slot = self.placed.places.at(place)
        found = []
        for index, (member, own) in enumerate(zip(self.members, self.blocks, strict=True)):
            pairs = member.tables.pairs
            if own == block and (of_downset := pairs.of_downset(larger)).start < of_downset.stop:
                future = numpy.full((len(member.times), pairs.count), inf)
                for out, rest in ways.items():
                    future[out] = rest
                best, entering = self._fastest(index, stage, sync_limit), (larger, row)
                found.append(
                    cheapest_stage(pairs, best, *self._around[index], entering, future, time_limit, slot, index)
                )
        _, out, chosen = min(found, key=lambda each: each[0])
        return out, chosen.smaller, chosen


def of_slots(member: Member, in_flight: tuple[float, ...], meter: Meter, weights: Weights | None) -> Recurrence:
    """Recurrence over the slots of one member."""
    stages = len(in_flight)
    steps = tuple(member.steps.tolist()) if member.own > 1 else (0,) * (stages - 1)
    return Recurrence([member], [0], in_flight, graph(SlotPlaces(steps, stages), stages), meter, weights)
