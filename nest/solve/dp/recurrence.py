"""The recurrence `dp[l][D][k][s]` of PROBLEM.md section 6 for fixed numbers of replicas and stages.

Stages are counted from the end: stage `j` is followed by `j - 1` others, which fixes its micro-batches in flight, so
memory is checked inside. An entry is the least sum of stage times under a limit on each stage's time and on its
gradient reduction. Where the stages may be is a graph of places (`nest.solve.dp.places`): slots of one candidate's
blocks, offsets of mixed plans, slots of several pools, those of stages of several chunks. Places with the same future
share their entries.
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
"""Most bytes of choices a recurrence keeps between runs: 200 layers that all differ take 1.2 s with them, else 3.1."""


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
    """Of the stages from one downset on, the one with the least sum with what follows it.

    Args:
        pairs: the stages.
        best: their fastest choices.
        behind: what a boundary behind costs, per level, shape `(levels, downsets)`.
        front: what one in front costs.
        entering: the downset, and the level of the boundary in front.
        future: least cost of what follows, by the level of the boundary behind and downset.
        time_limit: most seconds a stage may take per micro-batch.
        slot: as `PlacedStage`.
        member: as `PlacedStage`.

    Returns: the sum, the level of the boundary behind, and the stage.
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
"""What stages cost between boundaries of levels behind and in front: the last rows of the rectangle of their band."""


class Step(NamedTuple):
    """What one stage adds to a chain.

    Attributes:
        least: what it costs at least with what follows, between boundaries of rows behind and in front; for each of
            its larger downsets.
        heads: where these lie in such an array.
        size: how many stages there are.
    """

    least: Callable[[Array, int, int], Array]
    heads: Any
    size: int


Steps = Mapping[int, Sequence[Step]]
"""Those of each of the blocks that a stage may have."""


def least_sums(
    count: int, margin: int, surroundings: Sequence[Iterable[Surroundings]], steps: Iterable[Steps], meter: Meter
) -> list[list[Array]]:
    """What follows each stage costs at least by its surroundings, then all; as far as anything is within the limits.

    Args:
        count: number of downsets.
        margin: how many places, all infinite, are in front of these. Shape of each `(margin + count,)`.
        surroundings: those of each stage, counted from the last.
        steps: of each stage.
        meter: counts the work.
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
"""The best stage, counted from the last, at a place, from a larger downset on behind a boundary of some row, by the
least cost of what follows over each row behind: that row, the smaller downset, and the stage."""


def recovered(placed: Graph, rests: Sequence[Sequence[Array]], whole: int, choose: Choose) -> Partition | None:
    """The stages behind the least entry; among equals the first place, lowest row, smallest rest.

    Args:
        placed: where stages may be.
        rests: as `least_sums` has them, without margin.
        whole: the largest downset.
        choose: of the stages.

    Returns: None where none keep the limits.
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
    """The least of some, number by number."""
    some = arrays if places is None else [arrays[place] for place in places]
    least: Array = some[0] if len(some) == 1 else numpy.minimum.reduce(some)
    return least


def line(tables: StageTables, stages: int, time_limit: float) -> list[tuple[int, int, int]] | None:
    """Of each of so many stages, counted from the last, the first larger downset, the last, and how many lie between.

    None takes longer than `time_limit`; None where there is none of some. Only of stages in line.
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
    """Those of a `line`, with a margin of as many places as the band has rows; `costs` are of each stage."""
    for cost, (first, last, size) in zip(costs, heads, strict=True):
        places = slice(band.widest + first, band.widest + last + 1)
        yield {block: [Step(partial(_least, band, cost, first, last), places, size)]}


def _least(band: Band, cost: Costs, first: int, last: int, after: Array, level_out: int, level_in: int) -> Array:
    """As `Step.least`, of larger downsets from `first` to `last`."""
    own = band.columns(cost(level_out, level_in), first, last)
    least: Array = numpy.minimum.reduce(own + band.below(after, first, last)[band.widest - len(own) :])
    return least


def _within(cost: Array, time_limit: float) -> Array:
    """What costs no more than the limit; the rest is infinite, and first rows where all is are left out."""
    if time_limit == inf:
        return cost
    own = numpy.where(cost > time_limit, inf, cost)
    return own[int((own < inf).any(axis=1).argmax()) :]


@define(eq=False, repr=False)
class Recurrence:
    """The recurrence for a fixed number of stages of one chunk.

    With one place for each stage it is the relaxation in which every boundary is at its cheapest.

    Attributes:
        members: what stages may use.
        blocks: of each member those blocks that are its: as `Places.at` has them.
        in_flight: micro-batches in flight of stage `j` from the end, at index `j - 1`.
        placed: where stages may be.
        meter: counts the work.
        weights: what the schedule weighs apart; None: the sum is that of the stages' times.
    """

    members: Sequence[Member]
    blocks: Sequence[int]
    in_flight: tuple[float, ...]
    placed: Graph
    meter: Meter
    weights: Weights | None = None
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
        """Memory that entries take."""
        return 8 * self.members[0].tables.pairs.count * sum(map(len, self.placed.surroundings))

    def _fastest(self, member: int, stage: int, sync_limit: float) -> Fastest:
        """Fastest choices of a member's stages, remembered from one run to the next while the limit stays."""
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
        """What stages of the only member cost between boundaries of these levels, in the rectangle of a band."""
        cells, (behind, front) = band.filled(self.members[0].tables.pairs.spread(best.cost)), self._around[0]
        first, last = band.first, band.first + band.heads - 1
        cells += band.below(band.padded(behind[level_out]), first, last)
        cells += front[level_in, first : last + 1]
        return cells

    def run(self, time_limit: float, sync_limit: float) -> Partition | None:
        """A partition and placement with the least sum of stage times, or None when none keeps the limits.

        Args:
            time_limit: most seconds any stage may take per micro-batch.
            sync_limit: most seconds any stage may synchronise per batch.
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
        """What stages cost with these choices, in a band."""
        known = dict[tuple[Fastest, int, int], Array]()

        def cost(best: Fastest, level_out: int, level_in: int) -> Array:
            key = (best, level_out, level_in)
            if key not in known:
                known[key] = _within(self._between(best, band, level_out, level_in), time_limit)
            return known[key]

        return (partial(cost, best) for best in every)

    def _gathered(self, time_limit: float, sync_limit: float) -> Iterator[Steps]:
        """The steps of any stages, worked out one after the other."""
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
        """As `Step.least`; what they cost is known from one call to the next."""
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
        """As `Choose`."""
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
    """The recurrence over the slots of one member."""
    stages = len(in_flight)
    steps = tuple(member.steps.tolist()) if member.own > 1 else (0,) * (stages - 1)
    return Recurrence([member], [0], in_flight, graph(SlotPlaces(steps, stages), stages), meter, weights)
