"""What stages take and send at least: a recurrence without places, in which one choice decides both."""

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
"""How many times as many stages are nearly as many: their gradient reductions weigh at most so much too little."""

Joints = dict[tuple[int, int], tuple[float, tuple[float, ...]]]
"""By configuration and about how many stages: for which limit joint bounds were made, and those of 1, 2, ... stages."""


@define(eq=False, repr=False)
class JointSums:
    """What stages take and send at least, added up over a partition, boundaries at their cheapest.

    The floors of slowest stage, sum and gradient reduction are each the least on its own, as if a stage could choose
    ZeRO 0 for the one and ZeRO 2 for the other; here one choice decides both.

    The longest gradient reduction is no shorter than the mean of all, so that `B sum t + max y` is at least the sum of
    `B t_i + y_i / s`, of which a stage's own choice decides both parts (docs/explanation/proofs.md, Boxes).

    Attributes:
        tables: the stages' choices, their times whole; the stages lie in a band.
        boundary: least seconds a cut adds to either side of it, shape `(downsets,)`.
        in_flight: micro-batches in flight of stage `j` from the end, at index `j - 1`.
        total: `B`, weight of the sum of stages.
        meter: counts the work.
    """

    tables: StageTables
    boundary: Array
    in_flight: tuple[float, ...]
    total: float
    meter: Meter
    _around: Array = field(init=False, repr=False)

    @_around.default
    def _weighed_boundaries(self) -> Array:
        pairs = self.tables.pairs
        return self.total * (self.boundary.take(pairs.smaller) + self.boundary.take(pairs.larger))

    def least(self, time_limit: float, sync_limit: float) -> float:
        """Seconds of a step that no partition within these limits beats, its slowest stage's weight `A` aside.

        Args:
            time_limit: most seconds any stage may take per micro-batch.
            sync_limit: most seconds any stage may synchronise per batch.
        """
        rests = self._rests(time_limit, sync_limit)
        return inf if rests is None or len(rests) <= len(self.in_flight) else float(rests[-1][-1]) * (1 - SUM_ERROR)

    def least_of_fewer(self, time_limit: float, sync_limit: float) -> list[float]:
        """The same of 1, 2, ... stages up to those there are, of all in one pass.

        Of `k` stages gradient reductions are weighed by less than `1 / k` then, so that their longest is no shorter
        either.
        """
        rests = self._rests(time_limit, sync_limit)
        if rests is None:
            # That says nothing of fewer.
            return [0.0] * len(self.in_flight)
        found = [float(rest[-1]) * (1 - SUM_ERROR) for rest in rests[1:]]
        return found + [inf] * (len(self.in_flight) - len(found))

    def _rests(self, time_limit: float, sync_limit: float) -> list[Array] | None:
        """As `least_sums`, without surroundings; None where some stage has none within the limit."""
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
        """`B t + y / s` of each stage at least, with one choice for both. Shape `(pairs,)`."""
        tables, share = self.tables, 1 / len(self.in_flight)
        least = numpy.full(tables.classes, inf)
        for table in tables.tables:
            usable = table.fits(in_flight, tables.capacity) & (table.time <= time_limit) & (table.sync <= sync_limit)
            numpy.minimum(least, self.total * table.time + share * table.sync, out=least, where=usable)
        return tables.pairs.spread(least) + self._around


def _same(cost: Array, level_out: int, level_in: int) -> Array:
    """What stages cost whatever the levels."""
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
    """Seconds of a step beside its slowest stage that no plan takes less than which beats `limit`; 0 if unknown.

    It is the joint bound of all numbers of stages that are nearly as many, in one pass. One made for a higher limit
    holds as well, and is made again where it does not do.

    Args:
        search: of plans of one candidate.
        tables_within: stages of plans none of which takes longer than so many seconds.
        boundary: least seconds a cut adds to either side of it, shape `(downsets,)`.
        configuration: what is decided.
        stages: of the plans.
        limit: seconds of a step.
        floors: by number of stages, of those whose bounds are known.
        joints: what was found before; it grows.
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
    """A number that is equal where numbers of stages are nearly equal."""
    return int(log(stages, ALIKE))
