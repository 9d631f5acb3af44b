"""Joint lower bounds on times and communication of stages: a recurrence without places where one choice sets both."""

from collections.abc import Callable
from functools import partial
from math import inf, log

import numpy
from attrs import define, field

from nest.instance import Array
from nest.solve.dp.configurations import Configuration
from nest.solve.dp.nodes import PlanSearch
from nest.solve.dp.pareto import FEW_ALIKE, Floor
from nest.solve.dp.places import ALONE
from nest.solve.dp.recurrence import least_sums, line, line_steps
from nest.solve.dp.stages import StageTables
from nest.solve.search import Meter
from nest.tolerances import LIMIT_SLACK, SUM_ERROR

ALIKE = 1.15
"""Factor within which numbers of stages are alike: gradient reductions are underweighted by at most this much."""

Joints = dict[tuple[int, int], tuple[float, tuple[float, ...]]]
"""By configuration and rough number of stages: the limit of the joint bounds, and those of 1, 2, ... stages."""


@define(eq=False, repr=False)
class JointSums:
    """Least sum of times and communication over a partition, with the cheapest boundaries.

    The floors of slowest stage, sum and gradient reduction are separate minima, as if a stage could choose ZeRO 0 for
    one and ZeRO 2 for another; here one choice sets both. The longest gradient reduction is at least the mean, so `B
    sum t + max y` is at least the sum of `B t_i + y_i / s` (docs/explanation/proofs.md, Boxes).
    """

    tables: StageTables  # Choices of stages with undivided times; the stages lie in a band.
    boundary: Array  # Least seconds that a cut adds to either side, shape `(downsets,)`.
    in_flight: tuple[float, ...]  # Micro-batches in flight of stage `j` from the end, at index `j - 1`.
    total: float  # `B`, weight of the sum of stages.
    meter: Meter
    _around: Array = field(init=False, repr=False)

    @_around.default
    def _weighed_boundaries(self) -> Array:
        pairs = self.tables.pairs
        return self.total * (self.boundary.take(pairs.smaller) + self.boundary.take(pairs.larger))

    def least(self, time_limit: float, sync_limit: float) -> float:
        """Lower bound (s) on partitions within these limits, without the slowest stage's weight `A`.

        Args:
            time_limit: most seconds of a stage per micro-batch.
            sync_limit: most seconds of synchronisation per batch.
        """
        rests = self._rests(time_limit, sync_limit)
        return inf if rests is None or len(rests) <= len(self.in_flight) else float(rests[-1][-1]) * (1 - SUM_ERROR)

    def least_of_fewer(self, time_limit: float, sync_limit: float) -> list[float]:
        """Same for 1, 2, ... stages in one pass; fewer stages weight gradient reductions by less than `1 / k`."""
        rests = self._rests(time_limit, sync_limit)
        if rests is None:
            # That says nothing of fewer.
            return [0.0] * len(self.in_flight)
        found = [float(rest[-1]) * (1 - SUM_ERROR) for rest in rests[1:]]
        return found + [inf] * (len(self.in_flight) - len(found))

    def _rests(self, time_limit: float, sync_limit: float) -> list[Array] | None:
        """`least_sums` without surroundings; None: some stage has none within the limit."""
        tables = self.tables
        heads, band = line(tables, len(self.in_flight), time_limit), tables.pairs.band
        if heads is None or band is None:
            return None
        fits = [tables.same_fits(flying) for flying in self.in_flight]
        filled = {
            each: band.filled(self._each(flying, time_limit, sync_limit))
            for each, flying in dict(zip(fits, self.in_flight, strict=True)).items()
        }
        steps = line_steps(band, heads, (partial(_same, filled[each]) for each in fits))
        rests = least_sums(tables.pairs.count, band.widest, [ALONE] * len(fits), steps, self.meter)
        return [rest for (rest,) in rests]

    def _each(self, in_flight: float, time_limit: float, sync_limit: float) -> Array:
        """Least `B t + y / s` of each stage with one choice for both. Shape `(pairs,)`."""
        tables, share = self.tables, 1 / len(self.in_flight)
        least = numpy.full(tables.classes, inf)
        for table in tables.tables:
            usable = table.fits(in_flight, tables.capacity) & (table.time <= time_limit) & (table.sync <= sync_limit)
            numpy.minimum(least, self.total * table.time + share * table.sync, out=least, where=usable)
        return tables.pairs.spread(least) + self._around


def _same(cost: Array, level_out: int, level_in: int) -> Array:
    return cost


def least_beside(
    search: PlanSearch,
    tables_within: Callable[[float], StageTables],
    boundary: Array,
    configuration: Configuration,
    stages: int,
    limit: float,
    floors: dict[int, Floor],
    joints: Joints,
) -> float:
    """Lower bound (s) on a step beside its slowest stage, for plans below `limit`; 0: unknown.

    One pass gives the joint bound of all similar numbers of stages. A bound for a higher limit also holds, and is
    refined if it does not suffice.

    Args:
        tables_within: stages of plans with no stage longer than so many seconds.
        boundary: least seconds that a cut adds to either side, shape `(downsets,)`.
        limit: seconds of a step.
        floors: by number of stages, if known.
        joints: cache; it grows.
    """
    objectives = {
        count: objective
        for count, floor in floors.items()
        if _about(count) == _about(stages) and (objective := search.objective(configuration, count)).of(floor) <= limit
    }
    if len(objectives) < FEW_ALIKE:
        return 0.0
    own, flying = search.objective(configuration, stages), search.in_flight(configuration, max(objectives))
    if any(search.in_flight(configuration, count) != flying[:count] for count in objectives):
        return 0.0
    key = configuration.order, _about(stages)
    made_for, found = joints.get(key, (inf, ()))
    known = len(found) >= stages
    if known and (own.slowest * floors[stages].largest_time + found[stages - 1] >= limit or made_for <= limit):
        return found[stages - 1]
    rests = {count: each.total * floors[count].total_time for count, each in objectives.items()}
    time_limit = max(
        each.time_limit(limit, rests[count] + floors[count].largest_sync) for count, each in objectives.items()
    )
    sync_limit = limit * (1 + LIMIT_SLACK) - min(
        each.slowest * floors[count].largest_time + rests[count] for count, each in objectives.items()
    )
    tables = tables_within(time_limit)
    if not tables.in_line:
        return 0.0
    total = min(each.total for each in objectives.values())
    every = JointSums(tables, boundary, flying, total, search.meter).least_of_fewer(time_limit, sync_limit)
    joints[key] = limit, tuple(every)
    return every[stages - 1]


def _about(stages: int) -> int:
    return int(log(stages, ALIKE))
