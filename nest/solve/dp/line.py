"""The recurrence where no stage has a choice of slots and stages lie in a band: least sums of a chain, stage by stage.

One number is left of each stage's state, the downset that it begins with. The steps are those of `Recurrence`; what
they cost is mostly the number of calls, so that all that can be is worked out ahead of them.
"""

from collections.abc import Sequence
from math import inf

import numpy
from attrs import define, field, frozen

from nest.instance import Array
from nest.solve.dp.pairs import Band
from nest.solve.dp.stages import StageTables
from nest.solve.search import Meter
from nest.tolerances import SUM_ERROR


@frozen(eq=False, repr=False)
class Line:
    """The larger downsets that each stage, counted from the last, may have.

    Attributes:
        band: the stages.
        count: number of downsets.
        heads: of each stage the first larger downset and the last.
        states: how many stages lie between these, of all together.
    """

    band: Band
    count: int
    heads: tuple[tuple[int, int], ...]
    states: int

    @classmethod
    def of(cls, tables: StageTables, stages: int, time_limit: float) -> "Line | None":
        """That of so many stages of which none takes longer than `time_limit`; None: some stage has none."""
        pairs, band = tables.pairs, tables.pairs.band
        assert band is not None
        first, last = tables.windows(stages, time_limit)
        begin, end = pairs.heads.searchsorted(first), pairs.heads.searchsorted(last + 1)
        if (begin >= end).any():
            return None
        ends = numpy.append(pairs.starts, len(pairs))
        heads = zip(pairs.heads[begin].tolist(), pairs.heads[end - 1].tolist(), strict=True)
        return cls(band, pairs.count, tuple(heads), int((ends[end] - ends[begin]).sum()))

    def least(self, costs: Sequence[Array], time_limit: float) -> list[Array]:
        """What follows each stage costs at least, then all; as far as anything is within the limit.

        Each is infinite below its first `widest` places, which `Band.padded` puts in front. Shape `(stages + 1,)`.

        Args:
            costs: of each stage, counted from the last, what stages cost, in the rectangle of the band.
            time_limit: most that a stage may cost.
        """
        widest, band = self.band.widest, self.band
        rest = numpy.full(widest + self.count, inf)
        rest[widest] = 0.0
        every, limited = [rest], dict[int, Array]()
        # Where stages share what they cost, limits are put on it once.
        shared = len({id(each) for each in costs}) * 4 <= len(costs)
        for cost, (first, last) in zip(costs, self.heads, strict=True):
            if shared:
                if id(cost) not in limited:
                    own = _within(cost, time_limit)
                    # Rows of stages so long that none is within the limit are left out.
                    limited[id(cost)] = own[int((own < inf).any(axis=1).argmax()) :]
                own = band.columns(limited[id(cost)], first, last)
            else:
                own = _within(band.columns(cost, first, last), time_limit)
            least = (own + band.below(rest, first, last)[widest - len(own) :]).min(axis=0)
            if not (least < inf).any():
                return every
            rest = numpy.full(widest + self.count, inf)
            rest[widest + first : widest + last + 1] = least
            every.append(rest)
        return every

    def smaller(self, cost: Array, rest: Array, larger: int, time_limit: float) -> tuple[int, float]:
        """The smaller downset of the stage from `larger` on that costs least with what follows, and what it costs.

        Of equals the smallest. Arguments are as of `least`, of one stage.
        """
        own = cost[:, larger - self.band.first]
        row = int((_within(own, time_limit) + rest[larger : larger + self.band.widest]).argmin())
        return larger - self.band.widest + row, float(own[row])


def _within(cost: Array, time_limit: float) -> Array:
    """What costs no more than the limit; the rest is infinite."""
    return cost if time_limit == inf else numpy.where(cost > time_limit, inf, cost)


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
        """As `Line.least`; None where some stage has none within the limit."""
        tables = self.tables
        line = Line.of(tables, len(self.in_flight), time_limit)
        if line is None:
            return None
        self.meter.count(line.states)
        fits = [tables.same_fits(flying) for flying in self.in_flight]
        filled = {
            each: line.band.filled(self._each(flying, time_limit, sync_limit))
            for each, flying in dict(zip(fits, self.in_flight, strict=True)).items()
        }
        return line.least([filled[each] for each in fits], inf)

    def _each(self, in_flight: float, time_limit: float, sync_limit: float) -> Array:
        """`B t + y / s` of each stage at least, with one choice for both. Shape `(pairs,)`."""
        tables, share = self.tables, 1 / len(self.in_flight)
        least = numpy.full(tables.classes, inf)
        for table in tables.tables:
            usable = table.fits(in_flight, tables.capacity) & (table.time <= time_limit) & (table.sync <= sync_limit)
            numpy.minimum(least, self.total * table.time + share * table.sync, out=least, where=usable)
        return tables.pairs.spread(least) + self._around
