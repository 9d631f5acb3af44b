"""Cheapest plan by price in a leaf with one chunk per stage: cuts, places, candidates and choices."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy
from attrs import define, field

from nest.reuse import once
from nest.solve.dp.by_price import Leaf, Option, Ways, not_worse, worse
from nest.solve.dp.choices import Boundary
from nest.solve.dp.configurations import Configuration
from nest.solve.dp.nodes import CutSearch
from nest.solve.dp.pareto import Floor, Partition, PlacedStage
from nest.solve.dp.places import Place
from nest.solve.dp.recurrence import Recurrence
from nest.solve.search import Best, Incumbent, Price
from nest.tolerances import LIMIT_SLACK

Choices = list[tuple[int, int, tuple[float, float, float]]]
"""Stages from a downset on: smaller downset, choice, and its part of the sum, seconds per micro-batch and per batch."""


@define(eq=False)
class _Stages:
    """Stages of a leaf."""

    search: CutSearch
    configuration: Configuration
    stages: int
    time_limit: float  # Most seconds of a stage per micro-batch.
    of: Recurrence  # The recurrence, with every choice.
    _known: dict[tuple[int | None, ...], Choices] = field(factory=dict, init=False)

    def options(self, index: int, state: Any) -> Sequence[Option]:
        """Options of a stage in a state: larger downset, row of the boundary in front, and place."""
        placed, whole = self.of.placed, self.of.members[0].tables.pairs.count - 1
        if state is None:
            first = {number: place for place, number in reversed(placed.first())}
            return [each for place in first.values() for each in self.options(index, (whole, None, place))]
        larger, front, place = state
        block, slot = placed.places.at(place)
        last, found = index == self.stages - 1, []
        behind: dict[Any, tuple[int | None, int | None, Place]] = {None: (None, None, None)} if last else {}
        for step in [] if last else placed.following(place, self.stages - index):
            behind.setdefault((step[0], step[3]), step[:3])
        for member, own in enumerate(self.of.blocks):
            for out, entering, following in behind.values() if own == block else ():
                for smaller, choice, figures in self._choices(member, index, larger, front, out):
                    after = () if last else (smaller, entering, following)
                    found.append(Option(after, *figures, PlacedStage(larger, smaller, slot, choice, *figures, member)))
        return found

    def _choices(self, member: int, index: int, larger: int, front: int | None, behind: int | None) -> Choices:
        """Undominated choices of a stage from one downset on between boundaries of these rows."""
        key = member, index, larger, front, behind
        return once(self._known, key, lambda: self._made(*key))

    def _made(self, member: int, index: int, larger: int, front: int | None, behind: int | None) -> Choices:
        used, flying = self.of.members[member], self.search.in_flight(self.configuration, self.stages)
        tables, weights = used.tables, self.search.apart(self.configuration, self.stages)
        row = tables.pairs.of_downset(larger)
        places = numpy.arange(row.start, row.stop)
        left = self.stages - 1 - index
        quick = tables.compute[tables.pairs.smaller[places]] <= left * self.time_limit * (1 + LIMIT_SLACK)
        places = places[quick & ((tables.pairs.smaller[places] == 0) == (behind is None))]
        smaller = tables.pairs.smaller[places]
        classes = places if tables.pairs.classes is None else tables.pairs.classes[places]
        around = (
            [] if front is None else [Boundary(used.levels[front], float(used.times[front, larger]))],
            [] if behind is None else [Boundary(used.levels[behind], used.times[behind, smaller])],
        )
        every = [table.at(classes) for table in tables.tables]
        figures = numpy.array([each.between(..., weights, *around) for each in every]).swapaxes(0, 1)
        free = [each._replace(ports=None).between(..., weights, *around)[0] for each in every if tables.ports]
        fits = numpy.array([each.fits(flying[left], tables.capacity) for each in every])
        time, cost, sync = figures
        alone = numpy.array(free) if free else time
        pairs = worse(self.search, self.configuration, used.candidate, tables.choices)
        kept = not_worse(fits & (time <= self.time_limit) & numpy.isfinite(time), figures, alone, pairs)
        choices, columns = numpy.nonzero(kept)
        seconds = numpy.array([cost, time, sync])[:, choices, columns].T.tolist()
        return list(zip(smaller[columns].tolist(), choices.tolist(), map(tuple, seconds), strict=True))


def best_by_price(
    search: CutSearch,
    configuration: Configuration,
    stages: int,
    floor: Floor,
    known: Incumbent,
    limit: float,
    price: Price,
    offered: Callable[[], Recurrence],
    plan: Callable[[float, Partition], Incumbent],
) -> Best:
    """Plan with the least price below `limit`, by replay.

    Args:
        known: plan with the least closed form.
        limit: step time to beat, seconds.
        offered: the recurrence over stages with every choice.
        plan: builds the plan of some stages with that closed form.
    """
    leaf = Leaf.of(limit, search.meter, 2 * configuration.micro_batches * stages)
    if len(search.pairs(configuration)) * sum(len(own) for _, own in configuration.members) > leaf.options:
        return Best(None, known.value)
    objective = search.objective(configuration, stages)
    time_limit = objective.time_limit(limit, objective.total * floor.total_time + floor.largest_sync)
    of_leaf = _Stages(search, configuration, stages, time_limit, offered())
    ways = Ways(stages, None, (), of_leaf.options, objective, floor, leaf.spend)
    laid = leaf.laid(ways, known.value, lambda way: iter([plan(way.seconds, Partition(way.stages))]))
    return leaf.best_of(laid, price)
