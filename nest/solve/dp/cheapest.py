"""The cheapest choices of stages where a schedule weighs the parts of their times apart, or where messages hide.

Then what plans are to have the least sum of is not the time that is limited: the sum is over `Bf f + Bb b + Bw w`, with
nothing hidden, the limit on `t` (PROBLEM.md section 4). Which choice is cheapest within the limit depends on the
boundaries; mostly it is the one that is cheapest of all.
"""

from collections.abc import Sequence

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.instance import Array, Weights
from nest.solve.dp.choices import UNKNOWN, Boundary
from nest.solve.dp.stages import Fastest, StageTables, fastest


@frozen(eq=False)
class Cheapest(Fastest):
    """The choice of each class of stages that weighs least, of those that fit memory and keep a limit on `sync`.

    Where that takes too long between its boundaries, it is the one that weighs least of those that do not.

    Attributes:
        tables: the stages.
        weights: of the schedule.
        time: seconds per micro-batch of the choice, without boundaries.
        least: the same of the fastest choice.
        work: seconds of the choice's compute, under which messages hide; None: they do not.
        tight: whether ports may hold up the choice; None: nowhere.
        usable: of each choice, the classes of stages that fit memory with it and may keep the limit on `sync`.
        sync_limit: most seconds a stage may synchronise per batch.
        times: seconds that a boundary adds, shape `(rows, downsets)`.
        levels: the level of each row, or `UNKNOWN`.
    """

    tables: StageTables
    weights: Weights
    time: Array
    least: Array
    work: Array | None
    tight: NDArray[numpy.bool_] | None
    usable: tuple[NDArray[numpy.bool_], ...]
    sync_limit: float
    times: Array
    levels: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Memory this takes."""
        usable = sum(each.nbytes for each in self.usable)
        return super().bytes + self.time.nbytes + self.least.nbytes + usable

    def settle(self, cost: Array, part: slice, level_out: int, level_in: int, time_limit: float) -> None:
        """As `Fastest.settle`; what takes too long is chosen anew."""
        pairs = self.tables.pairs
        added = self.times[level_out][pairs.smaller[part]] + self.times[level_in][pairs.larger[part]]
        time, least = pairs.spread(self.time, part) + added, pairs.spread(self.least, part)
        if self.work is None:
            least = least + added
        else:
            time -= numpy.minimum(added, pairs.spread(self.work, part))
        late = time > time_limit
        unsettled = late & (least <= time_limit)
        if self.tight is not None:
            unsettled |= pairs.spread(self.tight, part)
        cost[late] = numpy.inf
        some = numpy.flatnonzero(unsettled)
        if len(some):
            cost[some] = self.choose(part.start + some, level_out, level_in, time_limit)[0]

    def chosen(
        self, pair: int, kind: int, level_out: int, level_in: int, cost: float, time_limit: float
    ) -> tuple[float, float, int]:
        """As `Fastest.chosen`."""
        _, time, sync, choice = self.choose(numpy.array([pair]), level_out, level_in, time_limit)
        return float(time[0]), float(sync[0]), int(choice[0])

    def choose(
        self, pairs: NDArray[numpy.int64], level_out: int, level_in: int, time_limit: float
    ) -> tuple[Array, Array, Array, NDArray[numpy.int16]]:
        """Of these stages the least cost within limits, seconds per micro-batch and per batch, and the choice.

        Of equals the one that takes least time, then the one that synchronises fastest, then the preferred one.
        """
        stages = self.tables.pairs
        classes = pairs if stages.classes is None else stages.classes[pairs]
        behind = self.times[level_out][stages.smaller[pairs]]
        front = self.times[level_in][stages.larger[pairs]]
        found = numpy.full((3, len(pairs)), numpy.inf)
        choice = numpy.zeros(len(pairs), dtype=numpy.int16)
        for index, (table, usable) in enumerate(zip(self.tables.tables, self.usable, strict=True)):
            some = numpy.flatnonzero(usable[classes])
            if not len(some):
                continue
            time, cost, sync = table.weighed(
                classes[some],
                self.weights,
                (Boundary(self.levels[level_in], front[some]),),
                (Boundary(self.levels[level_out], behind[some]),),
            )
            figures = numpy.array([cost, time, sync])
            better = ahead(figures, found[:, some]) & (sync <= self.sync_limit) & (time <= time_limit)
            found[:, some[better]] = figures[:, better]
            choice[some[better]] = index
        return found[0], found[1], found[2], choice


def ahead(figures: Array, others: Array) -> NDArray[numpy.bool_]:
    """Which columns come before those of `others`: by their first rows, of equals by the next, and so on."""
    better = numpy.zeros(figures.shape[1:], dtype=bool)
    for row, other in zip(figures[::-1], others[::-1], strict=True):
        better = (row < other) | ((row == other) & better)
    return better


def cheapest(
    tables: StageTables,
    in_flight: float,
    sync_limit: float,
    times: Array,
    levels: Sequence[int],
    weights: Weights | None,
) -> Fastest:
    """The choices that add least to the sum; arguments as of `nest.solve.dp.stages.fastest`, and of `Recurrence`."""
    if weights is None:
        return fastest(tables, in_flight, sync_limit, times, levels)
    found = numpy.full((3, tables.classes), numpy.inf)
    choice = numpy.zeros(tables.classes, dtype=numpy.int16)
    least, work = numpy.full(tables.classes, numpy.inf), numpy.zeros(tables.classes)
    tight, usable, hides = numpy.zeros(tables.classes, dtype=bool), [], False
    for index, table in enumerate(tables.tables):
        assert table.parts is not None
        fits = table.fits(in_flight, tables.capacity) & (table.sync <= sync_limit)
        usable.append(fits)
        figures = numpy.array([table.parts.weighed(weights), table.time, table.sync])
        better = fits & ahead(figures, found)
        found[:, better] = figures[:, better]
        choice[better] = index
        least[fits] = numpy.minimum(least, table.time)[fits]
        work[better], hides = table.parts.work[better], table.parts.hides
        if table.ports is not None:
            # Ports only make a choice dearer. So where none holds up the cheapest without them, it is the cheapest.
            tight[better] = (table.ports.slow if UNKNOWN in levels else table.ports.tight)[better]
    return Cheapest(
        found[0],
        found[2],
        choice,
        tables,
        weights,
        found[1],
        least,
        work if hides else None,
        tight if tight.any() else None,
        tuple(usable),
        sync_limit,
        times,
        tuple(levels),
    )


def least_parts(tables: StageTables, in_flight: float) -> Array:
    """What each class of stages takes at least with the choices that fit memory, each on its own; no boundaries.

    Returns: seconds per micro-batch; those of them to which all that is received adds; of forward passes; of gradients
        of inputs; of gradients of weights; of the second of these less the third; and once per batch. Infinite where
        nothing fits. Shape `(7, classes)`.
    """
    found = numpy.full((7, tables.classes), numpy.inf)
    for table in tables.tables:
        assert table.parts is not None
        parts = table.parts
        apart = table.time - parts.work if parts.hides else table.time
        fits = table.fits(in_flight, tables.capacity)
        rest = parts.inputs - parts.weights
        rows = (table.floor, apart, parts.forward, parts.inputs, parts.weights, rest, table.sync)
        for least, row in zip(found, rows, strict=True):
            numpy.minimum(least, row, out=least, where=fits)
    return found
