"""Cheapest plan of several chunks in a leaf by price: patterns, places, choices and units."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, product
from math import inf

import numpy
from attrs import evolve
from numpy.typing import NDArray

from nest.solve.dp.by_price import MOST_PASSES, PASSES, Laid, Leaf, Option, Way, Ways, not_worse, worse
from nest.solve.dp.chunk_costs import ChunkCosts, Filled
from nest.solve.dp.chunk_memory import Counts
from nest.solve.dp.chunk_parts import beyond_one
from nest.solve.dp.chunk_recurrence import ChunkRecurrence, Crossed
from nest.solve.dp.configurations import Configuration
from nest.solve.dp.pareto import PlacedStage
from nest.solve.search import Best, Incumbent, Price

Patterns = Iterable[tuple[Filled, ChunkRecurrence]]
"""Patterns with the recurrences of their stages, one for each choice of places."""

Plan = Callable[[Configuration, float, Filled, Sequence[PlacedStage], Sequence[Sequence[Counts]]], Incumbent]
"""Builds the plan of some stages of a pattern with placed units and that closed form."""


def best_by_price(
    search: ChunkCosts,
    patterns: Patterns,
    plan: Plan,
    configuration: Configuration,
    stages: int,
    limit: float,
    price: Price,
) -> Best:
    """Find the plan with the least price below `limit`, by replay; the even plan of each path comes first."""
    passes = 2 * configuration.micro_batches * len(search.splits.homes(configuration.schedule, stages))
    leaf = Leaf.of(limit, search.meter, passes)
    every = [_of_pattern(search, plan, configuration, *pattern, leaf) for pattern in patterns]
    return leaf.best_of(heapq.merge(*every, key=lambda each: each.seconds), price)


def _of_pattern(
    search: ChunkCosts,
    plan: Plan,
    configuration: Configuration,
    filled: Filled,
    recurrence: ChunkRecurrence,
    leaf: Leaf,
) -> Iterator[Laid]:
    def plans(way: Way) -> Iterator[Incumbent]:
        laid = _laid(search, configuration, filled, way.stages, leaf)
        return map(partial(plan, configuration, way.seconds, filled, way.stages), laid)

    yield from leaf.laid(_ways(search, configuration, filled, recurrence, leaf), filled.bound, plans)


def _ways(
    search: ChunkCosts, configuration: Configuration, filled: Filled, recurrence: ChunkRecurrence, leaf: Leaf
) -> Ways:
    crossings, runs, last = recurrence.crossings(), recurrence.runs, len(filled.stages) - 1
    kept = [_kept(search, configuration, filled, stage, crossed) for stage, crossed in enumerate(crossings)]

    def options(stage: int, state: object) -> Sequence[Option]:
        left = numpy.array(state, dtype=numpy.int64)
        further = recurrence.further(stage)
        rest = left - further
        enough = (rest >= 0).all(axis=1) if stage < last else (rest == 0).all(axis=1)
        time, cost, sync = filled.stages[stage].prices.at(crossings[stage])
        slot = recurrence.places.number(stage)
        found = []
        for choice, point in zip(*numpy.nonzero(kept[stage] & enough), strict=True):
            figures = float(cost[choice, point]), float(time[choice, point]), float(sync[choice, point])
            placed = PlacedStage(int(point), 0, slot, int(choice), *figures)
            found.append(Option(tuple(rest[point].tolist()), *figures, placed))
        return found

    slack = tuple(filled.pattern.slack[run] for run in runs)
    nothing = (0,) * len(runs)
    return Ways(last + 1, slack, nothing, options, filled.costs.objective, filled.floor, leaf.spend)


def _kept(
    search: ChunkCosts, configuration: Configuration, filled: Filled, stage: int, crossed: Crossed
) -> NDArray[numpy.bool_]:
    """Fitting choices of a stage that no other dominates pass by pass.

    A dominating choice also has at least as much room for units, whatever their placement.
    """
    own, held = filled.stages[stage], filled.held[stage]
    figures = numpy.array(own.prices.at(crossed))
    alone = evolve(own.prices, table=own.prices.table._replace(ports=None)).at(crossed)[0]
    pairs, costs = worse(search, configuration, configuration.candidate, filled.costs.choices), filled.costs
    stashed, most = search.stashed(configuration, filled)[stage], numpy.empty(own.memory.shape)
    for name, rows in costs.rows.items():
        more, stashes = costs.more[name]
        most[rows] = held.most(own.prices.counts, more, stashed if stashes else [0.0] * len(stashed))
    for pair, some in costs.rows_of_parts():
        assert own.prices.laid is not None
        most[some] = beyond_one(pair, own.prices.laid, held, stashed).most
    roomy = own.prices.table.first + most <= costs.capacity
    return not_worse(own.fits & (figures[0] < inf), figures, alone, pairs, roomy)


def _laid(
    search: ChunkCosts, configuration: Configuration, filled: Filled, stages: Sequence[PlacedStage], leaf: Leaf
) -> Iterator[tuple[tuple[Counts, ...], ...]]:
    """Yield placements of the stages' free units: by stage and chunk, of each run.

    Even ones first, with the remainder in the same chunks of all stages: unequal neighbouring chunks wait for each
    other.
    """
    every, even = [], []
    for index, stage in enumerate(stages):
        own, room = search.spread(configuration, filled, index, stage.choice, stage.larger)
        asked = own.counts, own.more, own.held.base(own.more, own.kept), room
        even.append([None if each is None else own.whole(each) for each in own.held.even_ways(*asked)])
        every.append(islice(map(own.whole, own.held.ways(*asked, leaf.spend)), MOST_PASSES // PASSES + 1))
    aligned = dict.fromkeys(each for each in zip(*even, strict=True) if None not in each)
    yield from aligned
    yield from (each for each in product(*every) if each not in aligned)
