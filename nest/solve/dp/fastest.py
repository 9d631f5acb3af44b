"""The fastest choice of every stage, between boundaries of given levels where its ports make that matter."""

from collections.abc import Sequence

import numpy
from attrs import field, frozen
from numpy.typing import NDArray

from nest.instance import Array
from nest.solve.dp.ports import UNKNOWN, Boundary
from nest.solve.dp.stages import StageTables

AT_ONCE = 2**15
"""Stages that are priced at once, so that what is computed of them stays in the processor's caches."""


@frozen(eq=False)
class Fastest:
    """The fastest choice of each kind of stage that fits memory and keeps a limit on synchronisation.

    Attributes:
        time: seconds per micro-batch without boundaries, infinite where nothing fits, shape `(kinds,)`.
        sync: seconds once per batch.
        choice: index of the choice.
        tight: the stages for which that is only so for some boundaries; None: there is none.
    """

    time: Array
    sync: Array
    choice: NDArray[numpy.int16]
    tight: "Tight | None" = None

    @property
    def bytes(self) -> int:
        """Memory this takes, with all that may be remembered."""
        tight = 0 if self.tight is None else self.tight.bytes
        return self.time.nbytes + self.sync.nbytes + self.choice.nbytes + tight

    def settle(self, time: Array, part: slice, level_out: int, level_in: int) -> None:
        """Put right the `time` of the stages of `part` between boundaries of these levels, as added up without ports.

        Levels are indices of rows of boundary times.
        """
        if self.tight is not None:
            self.tight.settle(time, part, level_out, level_in)

    def chosen(self, pair: int, kind: int, level_out: int, level_in: int) -> tuple[float, int]:
        """Seconds once per batch and choice of one stage between boundaries of these levels."""
        if self.tight is not None:
            place = int(numpy.searchsorted(self.tight.pairs, pair))
            if place < len(self.tight.pairs) and self.tight.pairs[place] == pair:
                _, sync, choice = self.tight.choose(slice(place, place + 1), level_out, level_in)
                return float(sync[0]), int(choice[0])
        return float(self.sync[kind]), int(self.choice[kind])


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
    tight = numpy.zeros(tables.kinds, dtype=bool)
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
    return Fastest(time, sync, choice, Tight(tables, pairs, tuple(usable), sync_limit, times, tuple(levels)))


@frozen(eq=False)
class Tight:
    """Stages whose fastest choice without ports is held up by them.

    Attributes:
        tables: the stages.
        pairs: which of them, ascending.
        usable: of each choice, the kinds of stages that fit memory with it and may keep the limit on synchronisation.
        sync_limit: most seconds a stage may synchronise per batch.
        times: as `fastest`.
        levels: as `fastest`.
    """

    tables: StageTables
    pairs: NDArray[numpy.int64]
    usable: tuple[NDArray[numpy.bool_], ...]
    sync_limit: float
    times: Array
    levels: tuple[int, ...]
    _known: dict[tuple[int, int], Array] = field(factory=dict, init=False)

    @property
    def bytes(self) -> int:
        """Memory this takes, with all that may be remembered."""
        return self.pairs.nbytes * (1 + len(self.levels) ** 2) + sum(each.nbytes for each in self.usable)

    def settle(self, time: Array, part: slice, level_out: int, level_in: int) -> None:
        """As `Fastest.settle`; remembers the times where they are asked for of most stages."""
        begin, end = (int(place) for place in numpy.searchsorted(self.pairs, (part.start, part.stop)))
        if begin == end:
            return
        known = self._known.get((level_out, level_in))
        if known is None and 2 * (end - begin) > len(self.pairs):
            known = self._known[level_out, level_in] = self._times(0, len(self.pairs), level_out, level_in)
        found = self._times(begin, end, level_out, level_in) if known is None else known[begin:end]
        time[self.pairs[begin:end] - part.start] = found

    def _times(self, begin: int, end: int, level_out: int, level_in: int) -> Array:
        """Least seconds per micro-batch of the stages in these places."""
        parts = [slice(first, min(first + AT_ONCE, end)) for first in range(begin, end, AT_ONCE)]
        return numpy.concatenate([self.choose(part, level_out, level_in)[0] for part in parts])

    def choose(self, places: slice, level_out: int, level_in: int) -> tuple[Array, Array, NDArray[numpy.int16]]:
        """Of the stages in these places, seconds per micro-batch and per batch and the choice; as `StageTables.best`.

        Boundaries included.
        """
        pairs, stages = self.pairs[places], self.tables.pairs
        kinds = pairs if stages.kind is None else stages.kind[pairs]
        behind = self.times[level_out][stages.smaller[pairs]]
        front = self.times[level_in][stages.larger[pairs]]
        time, sync = numpy.full((2, len(pairs)), numpy.inf)
        choice = numpy.zeros(len(pairs), dtype=numpy.int16)
        for index, (table, usable) in enumerate(zip(self.tables.tables, self.usable, strict=True)):
            some = numpy.flatnonzero(usable[kinds])
            if not len(some):
                continue
            seconds, once = table.with_boundaries(
                kinds[some],
                Boundary(self.levels[level_out], behind[some]),
                Boundary(self.levels[level_in], front[some]),
            )
            before, after = time[some], sync[some]
            better = (once <= self.sync_limit) & ((seconds < before) | ((seconds == before) & (once < after)))
            kept = some[better]
            time[kept], sync[kept], choice[kept] = seconds[better], once[better], index
        return time, sync, choice
