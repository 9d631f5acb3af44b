"""Best choice for each class of stages: for any neighbours, or between known boundaries."""

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
    """Fastest choice of each class of stages within memory and a limit on gradient reduction; shape `(classes,)`."""

    cost: Array  # Minimised sum without boundaries: seconds per micro-batch; infinite if nothing fits.
    sync: Array  # Seconds per batch.
    choice: NDArray[numpy.int16]  # Index.

    @property
    def bytes(self) -> int:
        """Memory of the arrays."""
        return self.cost.nbytes + self.sync.nbytes + self.choice.nbytes

    @property
    def settled(self) -> bool:
        """True if boundaries only add to `cost`, for any levels and time limit."""
        return True

    def settle(self, cost: Array, part: slice, level_out: int, level_in: int, time_limit: float) -> None:
        """Correct the `cost`, summed without ports, of the stages of `part` between boundaries of these levels.

        Costs above `time_limit` seconds per micro-batch become infinite. Levels are indices of rows of boundary times.
        """
        if time_limit < numpy.inf:
            cost[cost > time_limit] = numpy.inf

    def chosen(
        self, pair: int, kind: int, level_out: int, level_in: int, cost: float, time_limit: float
    ) -> tuple[float, float, int]:
        """Seconds per micro-batch and per batch, and choice, of one stage of that cost between such boundaries."""
        return cost, float(self.sync[kind]), int(self.choice[kind])


@frozen(eq=False, repr=False)
class BetweenBoundaries(Fastest):
    """Same, if the boundaries of some stages decide the best choice."""

    tables: StageTables
    # By choice, classes of stages that fit memory and may keep the limit on `sync`.
    usable: tuple[NDArray[numpy.bool_], ...]
    sync_limit: float  # Most seconds of synchronisation per batch.
    times: Array  # Seconds that a boundary adds, shape `(rows, downsets)`.
    levels: tuple[int, ...]  # Level of each row, or `UNKNOWN`.

    @property
    def bytes(self) -> int:
        """Memory of the arrays."""
        return super().bytes + sum(each.nbytes for each in self.usable)

    @property
    def settled(self) -> bool:
        """False: boundaries matter."""
        return False

    @abstractmethod
    def priced(
        self, table: ChoiceTable, classes: NDArray[Any], front: Boundary, behind: Boundary
    ) -> tuple[Array, Array, Array]:
        """Cost, seconds per micro-batch and seconds per batch of stages with a choice between their boundaries."""

    def choose(
        self, pairs: NDArray[numpy.int64], level_out: int, level_in: int, time_limit: float = numpy.inf
    ) -> tuple[Array, Array, Array, NDArray[numpy.int16]]:
        """Least cost of these stages within limits, seconds per micro-batch and per batch, and the choice.

        Ties go by time, then synchronisation, then preference.
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
    """Fastest choices with so many micro-batches in flight.

    Args:
        sync_limit: most seconds of synchronisation per batch.
        times: seconds that a boundary adds, shape `(rows, downsets)`.
        levels: level of each row, or `UNKNOWN`.
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
    """Choices if ports delay the fastest choice of some stages (`pairs`, ascending)."""

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
    """Choice of each class of stages with the least weight within memory and a limit on `sync`.

    If it takes too long between its boundaries, the lightest that does not is used.
    """

    weights: Weights
    time: Array  # Seconds per micro-batch of the choice, without boundaries.
    least: Array  # Same for the fastest choice.
    work: Array | None  # Seconds of the choice's compute, under which messages hide; None: they do not.
    tight: NDArray[numpy.bool_] | None  # Ports may delay the choice; None: nowhere.

    @property
    def bytes(self) -> int:
        """Memory of the arrays."""
        return super().bytes + self.time.nbytes + self.least.nbytes

    def settle(self, cost: Array, part: slice, level_out: int, level_in: int, time_limit: float) -> None:
        """See `Fastest.settle`; choices that take too long are replaced."""
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
        """See `Fastest.chosen`."""
        _, time, sync, choice = self.choose(numpy.array([pair]), level_out, level_in, time_limit)
        return float(time[0]), float(sync[0]), int(choice[0])

    def priced(
        self, table: ChoiceTable, classes: NDArray[Any], front: Boundary, behind: Boundary
    ) -> tuple[Array, Array, Array]:
        """See `BetweenBoundaries.priced`."""
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
    """Choices that add least to the sum; arguments of `fastest` and of `Recurrence`."""
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
    """Least terms of each class of stages over the choices that fit memory, without boundaries. Shape `(7, classes)`.

    Seconds per micro-batch; the part to which received messages add; forward passes; input gradients; weight gradients;
    the second of these less the third; seconds per batch. Infinite if nothing fits.
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
