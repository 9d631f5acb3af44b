"""The choice that is best for each class of stages: whatever lies beside them, or between known boundaries."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.instance import Array, Weights
from nest.solve.dp.choices import UNKNOWN, Boundary, ChoiceTable, ahead
from nest.solve.dp.stages import StageTables


@frozen(eq=False, repr=False)
class Fastest:
    """The fastest choice of each class of stages that fits memory and keeps a limit on gradient reduction.

    Attributes:
        cost: what plans are to have the least sum of, without boundaries: seconds per micro-batch; infinite where
            nothing fits, shape `(classes,)`.
        sync: seconds once per batch.
        choice: index of the choice.
    """

    cost: Array
    sync: Array
    choice: NDArray[numpy.int16]

    @property
    def bytes(self) -> int:
        """Memory this takes."""
        return self.cost.nbytes + self.sync.nbytes + self.choice.nbytes

    @property
    def settled(self) -> bool:
        """Whether boundaries only add to `cost`, whatever their levels and the limit on time."""
        return True

    def settle(self, cost: Array, part: slice, level_out: int, level_in: int, time_limit: float) -> None:
        """Put right the `cost` of the stages of `part` between boundaries of these levels, as added up without ports.

        It is infinite where they take longer than `time_limit` seconds per micro-batch. Levels are indices of rows of
        boundary times.
        """
        if time_limit < numpy.inf:
            cost[cost > time_limit] = numpy.inf

    def chosen(
        self, pair: int, kind: int, level_out: int, level_in: int, cost: float, time_limit: float
    ) -> tuple[float, float, int]:
        """Seconds per micro-batch and once per batch, and choice, of one stage of that cost between such boundaries."""
        return cost, float(self.sync[kind]), int(self.choice[kind])


@frozen(eq=False, repr=False)
class BetweenBoundaries(Fastest):
    """The same where the boundaries of some stages decide which choice is best.

    Attributes:
        tables: the stages.
        usable: of each choice, the classes of stages that fit memory with it and may keep the limit on `sync`.
        sync_limit: most seconds a stage may synchronise per batch.
        times: seconds that a boundary adds, shape `(rows, downsets)`.
        levels: the level of each row, or `UNKNOWN`.
    """

    tables: StageTables
    usable: tuple[NDArray[numpy.bool_], ...]
    sync_limit: float
    times: Array
    levels: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Memory this takes."""
        return super().bytes + sum(each.nbytes for each in self.usable)

    @property
    def settled(self) -> bool:
        """As `Fastest.settled`."""
        return False

    @abstractmethod
    def priced(
        self, table: ChoiceTable, classes: NDArray[Any], front: Boundary, behind: Boundary
    ) -> tuple[Array, Array, Array]:
        """Cost, seconds per micro-batch and seconds per batch of stages with a choice between their boundaries."""

    def choose(
        self, pairs: NDArray[numpy.int64], level_out: int, level_in: int, time_limit: float = numpy.inf
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
            around = Boundary(self.levels[level_in], front[some]), Boundary(self.levels[level_out], behind[some])
            figures = numpy.array(self.priced(table, classes[some], *around))
            within = (figures[1] <= time_limit) & (figures[2] <= self.sync_limit)
            better = ahead(figures, found[:, some]) & within
            found[:, some[better]] = figures[:, better]
            choice[some[better]] = index
        return found[0], found[1], found[2], choice


def fastest(tables: StageTables, in_flight: float, sync_limit: float, times: Array, levels: Sequence[int]) -> Fastest:
    """The fastest choices with so many micro-batches in flight.

    Args:
        tables: the stages.
        in_flight: micro-batches in flight.
        sync_limit: most seconds a stage may synchronise per batch.
        times: seconds that a boundary adds, shape `(rows, downsets)`.
        levels: the level of each row, or `UNKNOWN`.
    """
    time, sync, choice = tables.best(in_flight, sync_limit)
    if not tables.ports:
        return Fastest(time, sync, choice)
    tight = numpy.zeros(tables.classes, dtype=bool)
    usable = []
    for index, table in enumerate(tables.tables):
        assert table.ports is not None
        # Ports only make a choice slower. So where none holds up the fastest without them, it is the fastest.
        tight |= (choice == index) & (table.ports.slow if UNKNOWN in levels else table.ports.tight)
        usable.append(table.fits(in_flight, tables.capacity) & (table.sync <= sync_limit))
    tight &= numpy.isfinite(time)
    if not tight.any():
        return Fastest(time, sync, choice)
    pairs = numpy.flatnonzero(tables.pairs.spread(tight))
    return _HeldUp(time, sync, choice, tables, tuple(usable), sync_limit, times, tuple(levels), pairs)


@frozen(eq=False, repr=False)
class _HeldUp(BetweenBoundaries):
    """Where ports hold up the fastest choice of some stages.

    Attributes:
        pairs: which of them are held up, ascending.
    """

    pairs: NDArray[numpy.int64]

    @property
    def bytes(self) -> int:
        return super().bytes + self.pairs.nbytes

    def settle(self, cost: Array, part: slice, level_out: int, level_in: int, time_limit: float) -> None:
        begin, end = (int(place) for place in numpy.searchsorted(self.pairs, (part.start, part.stop)))
        if begin < end:
            some = self.pairs[begin:end]
            cost[some - part.start] = self.choose(some, level_out, level_in)[0]
        super().settle(cost, part, level_out, level_in, time_limit)

    def chosen(
        self, pair: int, kind: int, level_out: int, level_in: int, cost: float, time_limit: float
    ) -> tuple[float, float, int]:
        place = int(numpy.searchsorted(self.pairs, pair))
        if place == len(self.pairs) or self.pairs[place] != pair:
            return super().chosen(pair, kind, level_out, level_in, cost, time_limit)
        _, _, sync, choice = self.choose(self.pairs[place : place + 1], level_out, level_in)
        return cost, float(sync[0]), int(choice[0])

    def priced(
        self, table: ChoiceTable, classes: NDArray[Any], front: Boundary, behind: Boundary
    ) -> tuple[Array, Array, Array]:
        time, sync = table.with_boundaries(classes, behind, front)
        return time, time, sync


@frozen(eq=False, repr=False)
class Cheapest(BetweenBoundaries):
    """The choice of each class of stages that weighs least, of those that fit memory and keep a limit on `sync`.

    Where that takes too long between its boundaries, it is the one that weighs least of those that do not.

    Attributes:
        weights: of the schedule.
        time: seconds per micro-batch of the choice, without boundaries.
        least: the same of the fastest choice.
        work: seconds of the choice's compute, under which messages hide; None: they do not.
        tight: whether ports may hold up the choice; None: nowhere.
    """

    weights: Weights
    time: Array
    least: Array
    work: Array | None
    tight: NDArray[numpy.bool_] | None

    @property
    def bytes(self) -> int:
        """Memory this takes."""
        return super().bytes + self.time.nbytes + self.least.nbytes

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

    def priced(
        self, table: ChoiceTable, classes: NDArray[Any], front: Boundary, behind: Boundary
    ) -> tuple[Array, Array, Array]:
        """As `BetweenBoundaries.priced`."""
        time, cost, sync = table.weighed(classes, self.weights, (front,), (behind,))
        return cost, time, sync


def cheapest(
    tables: StageTables,
    in_flight: float,
    sync_limit: float,
    times: Array,
    levels: Sequence[int],
    weights: Weights | None,
) -> Fastest:
    """The choices that add least to the sum; arguments as of `nest.solve.dp.fastest.fastest`, and of `Recurrence`."""
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
        tuple(usable),
        sync_limit,
        times,
        tuple(levels),
        weights,
        found[1],
        least,
        work if hides else None,
        tight if tight.any() else None,
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
