"""The plan of one chunk a stage that has the least price in a leaf: cuts, places and choices."""

from collections.abc import Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

import numpy

from nest.solve.dp.by_price import Laid, Leaf, Option, TooMany, Ways, worse
from nest.solve.dp.configurations import Configuration
from nest.solve.dp.pareto import Floor, Partition, PlacedStage
from nest.solve.dp.surroundings import placements
from nest.solve.search import Best, Incumbent, Price

if TYPE_CHECKING:
    from nest.solve.dp.plain import PlainSearch


def best_by_price(
    search: "PlainSearch", configuration: Configuration, stages: int, known: Incumbent, limit: float, price: Price
) -> Best:
    """The plan of least price that beats `limit`, as far as replays show; `known` has the least closed form."""
    leaf = Leaf.of(limit, search.meter, 2 * configuration.micro_batches * stages)
    if len(search.pairs(configuration)) * len(configuration.choices) > leaf.options:
        return Best(None, known.value)
    return leaf.best_of(_laid(search, configuration, stages, known, leaf), price)


def _laid(
    search: "PlainSearch", configuration: Configuration, stages: int, known: Incumbent, leaf: Leaf
) -> Iterator[Laid]:
    """Its plans, by their closed form."""
    reached = known.value
    tables = search.every_table(configuration)
    try:
        for way in _ways(search, configuration, stages, leaf).within(leaf.least):
            reached = way.seconds
            decided = search.decided(configuration, Partition(way.stages), tables)
            yield Laid(way.seconds, iter([search.incumbent(configuration, way.seconds, decided)]))
    except TooMany:
        leaf.left = min(leaf.left, reached)


def _ways(search: "PlainSearch", configuration: Configuration, stages: int, leaf: Leaf) -> Ways:
    """The ways through its stages: a state is a stage's downset, its slot, and the level of the boundary in front."""
    tables, boundary = search.every_table(configuration), search.boundaries(configuration)
    pairs, weights = tables.pairs, search.apart(configuration, stages)
    flying, objective = search.in_flight(configuration, stages), search.objective(configuration, stages)
    apart = len(boundary.times) > 1 and len(boundary.steps) + 1 > stages
    steps = tuple(boundary.steps.tolist()) if apart else tuple(boundary.steps.tolist()[: stages - 1])
    placed = placements(steps, stages)

    def following(slot: int, stage: int) -> list[tuple[int, int]]:
        """The levels behind a stage in some slot, each with a slot of every kind that the next one may have."""
        if stage == 1:
            return [(0, slot)]
        found: dict[tuple[int, int], int] = {}
        for level, slots in placed.followers(slot, stage):
            for each in slots:
                found.setdefault((level, placed.numbers[stage - 2][each, level]), each)
        return [(level, each) for (level, _), each in found.items()]

    def options(index: int, state: Any) -> Sequence[Option]:
        larger, slot, front = state
        stage = stages - index  # Counted from the last.
        row = pairs.of_downset(larger)
        smaller = pairs.smaller[row]
        reached = (smaller == 0) if stage == 1 else (smaller > 0)
        places = numpy.arange(row.start, row.stop)[reached]
        found = []
        for level, next_slot in following(slot, stage):
            for place in places.tolist():
                behind = [boundary.at(level, int(pairs.smaller[place]))] if stage > 1 else []
                before = [boundary.at(front, larger)] if index else []
                classes = numpy.array([pairs.class_of(place)])
                fitting = {}
                for choice, table in enumerate(tables.tables):
                    if not table.at(classes).fits(flying[stage - 1], tables.capacity).all():
                        continue
                    if weights is None:
                        time, sync = table.with_boundaries(classes, *behind, *before)
                        cost = time
                    else:
                        time, cost, sync = table.weighed(classes, weights, before, behind)
                    if time[0] < inf:
                        fitting[choice] = float(cost[0]), float(time[0]), float(sync[0])
                for one, other in worse(search, configuration, configuration.candidate, tables.choices):
                    if one in fitting and other in fitting:
                        mine, others = fitting[one], fitting[other]
                        if mine == others:
                            # Both take as long in all, and so do their passes: the first is kept.
                            del fitting[max(one, other)]
                        elif all(each >= least for each, least in zip(mine, others, strict=True)):
                            del fitting[one]
                below = int(pairs.smaller[place])
                for choice, figures in fitting.items():
                    chosen = PlacedStage(larger, below, slot, choice, *figures)
                    found.append(Option((below, next_slot, level) if stage > 1 else (), *figures, chosen))
        return found

    start = (pairs.count - 1, min(slot for slot, _ in placed.numbers[-1]), 0)
    return Ways(stages, start, (), options, objective, Floor(0.0, 0.0, 0.0), leaf.spend)
