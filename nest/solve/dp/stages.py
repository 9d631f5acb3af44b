"""Stage times and memory as arrays over pairs of nested downsets (PROBLEM.md section 4).

Each pair is the stage with the layers of the larger downset outside the smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy
from attrs import define, evolve, field, frozen
from numpy.typing import NDArray

from nest.instance import Array, Instance
from nest.reuse import BoundedCache
from nest.solve.dp.choices import Choice, ChoiceTable, not_dominated
from nest.solve.dp.pairs import Pairs, Rows, distinct
from nest.solve.dp.stage_times import ModeArrays, Unchosen, mode_arrays
from nest.solve.dp.sums import CandidateSums, PartSums
from nest.tolerances import LIMIT_SLACK, SEARCHED_MEMORY_SLACK

if TYPE_CHECKING:
    from nest.solve.dp.configurations import Configuration

T = TypeVar("T")

MOST_BYTES = 256 * 2**20
"""Most bytes of tables kept: without any, Mixtral 8x7B on 64 H100 takes 1.4 times as long (2026-11-23)."""

SMALL_COUNTS = 2**16  # Micro-batches in flight from which on distinct numbers are found by sorting.


@frozen(eq=False, repr=False, slots=False)
class StageTables:
    """Every choice of every class of stages, for one candidate, number of replicas and rank order."""

    choices: tuple[Choice, ...]  # Preferred first.
    tables: tuple[ChoiceTable, ...]  # Of each choice.
    pairs: Pairs  # Stages; the tables run over their classes.
    capacity: float  # Bytes of a stage, with slack for rounding.
    compute: Array  # Lower bound on seconds of forward and backward passes, shape `(downsets,)`.
    _most_in_flight: list[NDArray[numpy.int64]] = field(factory=list, repr=False)
    _fits: dict[float, float] = field(factory=dict, repr=False)

    @property
    def bytes(self) -> int:
        """Memory of the tables and pairs."""
        arrays: list[Any] = [self.pairs.larger, self.pairs.smaller, self.pairs.classes]
        for table in self.tables:
            arrays += [table.time, table.sync, table.first, table.more]
            arrays += [] if table.ports is None else [getattr(table.ports, name) for name in table.ports.names()]
            parts = table.parts
            arrays += [] if parts is None else [parts.forward, parts.inputs, parts.weights, parts.work]
        # Choices may share arrays.
        return sum({id(array): array.nbytes for array in arrays if array is not None}.values())

    @property
    def classes(self) -> int:
        """Number of classes of stages."""
        return len(self.pairs.distinct)

    @property
    def ports(self) -> bool:
        """True if ports may delay some stages."""
        return any(table.ports is not None for table in self.tables)

    @property
    def parted(self) -> bool:
        """True if times are known by parts."""
        return any(table.parts is not None for table in self.tables)

    def same_fits(self, in_flight: float) -> float:
        """A number that is equal for micro-batches in flight with which the same choices fit memory."""
        if in_flight not in self._fits:
            if not self._most_in_flight:
                self._most_in_flight.append(_distinct([table.most_in_flight(self.capacity) for table in self.tables]))
            whole = in_flight == int(in_flight)
            self._fits[in_flight] = int(self._most_in_flight[0].searchsorted(in_flight)) if whole else -in_flight
        return self._fits[in_flight]

    def best(self, in_flight: float, sync_limit: float) -> tuple[Array, Array, NDArray[numpy.int16]]:
        """Fastest choice of each class of stages within memory and `sync_limit` seconds of synchronisation.

        Without ports and boundaries, which may favour another. Returns seconds per micro-batch (infinite if nothing
        fits), seconds per batch, and the choice; ties go by synchronisation, then preference.
        """
        time, sync = numpy.full(self.classes, numpy.inf), numpy.full(self.classes, numpy.inf)
        choice = numpy.zeros(self.classes, dtype=numpy.int16)
        for index, table in enumerate(self.tables):
            better = table.fits(in_flight, self.capacity)
            if sync_limit < numpy.inf:
                better &= table.sync <= sync_limit
            better &= (table.time < time) | ((table.time == time) & (table.sync < sync))
            numpy.copyto(time, table.time, where=better)
            numpy.copyto(sync, table.sync, where=better)
            choice[better] = index
        return time, sync, choice

    def least(self, in_flight: float) -> tuple[Array, Array]:
        """Least seconds per micro-batch and per batch of each class of stages over the choices that fit memory.

        Separate minima without ports, infinite if nothing fits.
        """
        time, sync = numpy.full(self.classes, numpy.inf), numpy.full(self.classes, numpy.inf)
        for table in self.tables:
            fits = table.fits(in_flight, self.capacity)
            numpy.minimum(time, table.time, out=time, where=fits)
            numpy.minimum(sync, table.sync, out=sync, where=fits)
        return time, sync

    def least_memory(self, in_flight: float) -> Array:
        """Least memory of each class of stages over the choices, bytes."""
        least = numpy.full(self.classes, numpy.inf)
        for table in self.tables:
            numpy.minimum(least, table.first + (in_flight - 1) * table.more, out=least)
        return least

    def window(self, after: int, before: int, time_limit: float) -> Rows:
        """Stages within the limit with `after` stages behind them and up to `before` in front."""
        if self.ascending is None or time_limit == numpy.inf:
            return window(self.pairs, self.compute, after, before, time_limit)
        slack = time_limit * (1 + LIMIT_SLACK)
        last = int(self.compute.searchsorted((after + 1) * slack, side="right")) - 1
        return self.pairs.rows(int(self.ascending.searchsorted(-before * slack)), last)

    def windows(self, stages: int, time_limit: float) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64]]:
        """First and last downset of each of so many stages within the limit, counted from the last stage.

        Only if downsets ascend.
        """
        assert self.ascending is not None
        after, slack = numpy.arange(stages), time_limit * (1 + LIMIT_SLACK)
        if time_limit == numpy.inf:
            return numpy.zeros(stages, dtype=numpy.int64), numpy.full(stages, self.pairs.count - 1)
        last = self.compute.searchsorted((after + 1) * slack, side="right") - 1
        return self.ascending.searchsorted(-(stages - 1 - after) * slack), last

    @cached_property
    def ascending(self) -> Array | None:
        """Compute of each downset minus all layers', at most 0; None: downsets do not ascend."""
        return self.compute - self.compute[-1] if (numpy.diff(self.compute) >= 0).all() else None

    @property
    def in_line(self) -> bool:
        """True if a band and the compute of downsets determine the stages (`nest.solve.dp.line`)."""
        return self.pairs.band is not None and self.ascending is not None

    def within(self, time_limit: float) -> StageTables:
        """Stages that fit memory with one micro-batch in flight and take at most `time_limit` seconds."""
        mask = numpy.zeros(self.classes, dtype=bool)
        for table in self.tables:
            mask |= (table.first <= self.capacity) & (table.floor <= time_limit)
        return self._of_classes(mask)

    def choosing(self, choices: Sequence[Choice]) -> StageTables | None:
        """Same with only some `choices`; None: one of these was dropped."""
        places = [self.choices.index(each) for each in choices if each in self.choices]
        if len(places) < len(choices):
            return None
        tables = tuple(self.tables[place] for place in places)
        return StageTables(tuple(choices), tables, self.pairs, self.capacity, self.compute)

    def only(self, mask: NDArray[numpy.bool_]) -> StageTables:
        """Select stages by pair."""
        if self.pairs.classes is None:
            return self._of_classes(mask)
        left = numpy.zeros(self.classes, dtype=bool)
        left[self.pairs.classes[mask]] = True
        tables = self._of_classes(left)
        return evolve(tables, pairs=tables.pairs.only(mask[left[self.pairs.classes]]))

    def _of_classes(self, mask: NDArray[numpy.bool_]) -> StageTables:
        if mask.all():
            return self
        places = numpy.flatnonzero(mask)
        tables = tuple(table.of_classes(places) for table in self.tables)
        # Fewer classes resolve fitting stages as finely as all.
        alike = list(self._most_in_flight)
        return StageTables(self.choices, tables, self.pairs.only_classes(mask), self.capacity, self.compute, alike)


def _distinct(counts: Sequence[NDArray[numpy.int64]]) -> NDArray[numpy.int64]:
    """Distinct counts, ascending: most are small, so none need be sorted."""
    met = numpy.zeros(SMALL_COUNTS, dtype=bool)
    large = []
    for each in counts:
        small = each < SMALL_COUNTS
        met[each[small]] = True
        large.append(each[~small])
    return numpy.concatenate([numpy.flatnonzero(met), distinct(numpy.concatenate(large))])


def window(pairs: Pairs, compute: Array, after: int, before: int, time_limit: float) -> Rows:
    """Stages within the limit with `after` stages behind them and up to `before` in front.

    A downset is excluded if its stages together, or the others, would exceed the limit.

    Args:
        compute: lower bound on seconds of forward and backward passes, shape `(downsets,)`.
        time_limit: most seconds of a stage per micro-batch.
    """
    if time_limit == numpy.inf:
        return pairs.rows(0, pairs.count - 1)
    slack = time_limit * (1 + LIMIT_SLACK)
    possible = (compute <= (after + 1) * slack) & (compute[-1] - compute <= before * slack)
    indices = numpy.flatnonzero(possible)
    return pairs.rows(int(indices[0]), int(indices[-1])) if len(indices) else pairs.rows(0, -1)


@define(eq=False, repr=False)
class RecentTables(Generic[T]):
    """Recently used tables of sufficiently fast stages: `MOST_BYTES` in all."""

    _known: BoundedCache[tuple[float, T, int]] = field(
        factory=lambda: BoundedCache(MOST_BYTES, itemgetter(2)), init=False
    )

    def of(self, key: Hashable, time_limit: float, make: Callable[[], tuple[T, int]]) -> tuple[T, bool]:
        """Tables with at least the stages of at most `time_limit` seconds, and whether they have no others.

        `make` builds those, and returns their bytes.
        """
        found = self._known.get(key)
        if found is None or found[0] < time_limit:
            found = self.keep(key, time_limit, *make())
        return found[1], found[0] == time_limit

    def keep(self, key: Hashable, time_limit: float, tables: T, size: int) -> tuple[float, T, int]:
        """Keep tables of `size` bytes with at least the stages of at most `time_limit` seconds."""
        return self._known.keep(key, (time_limit, tables, size))


def stage_tables(
    instance: Instance,
    configuration: Configuration,
    sums: CandidateSums,
    pairs: Pairs,
    choices: Sequence[Choice],
    *,
    held_up: bool = True,
    quickest: Array | None = None,
    part_sums: PartSums | None = None,
    every_choice: bool = False,
) -> StageTables:
    """Tables of the given choices over the classes of `pairs`, without choices that never help.

    Args:
        choices: preferred first.
        held_up: ports delay communication per batch; if not, the figures are lower bounds.
        quickest: lower bound on each downset's compute in seconds; None: the candidate's.
        part_sums: the candidate's times by parts, if the schedule needs them.
        every_choice: keep choices that never help.
    """
    stages, capacity = pairs.distinct, instance.cluster.memory * (1 + SEARCHED_MEMORY_SLACK)
    zeros = {choice.zero for choice in choices}
    unchosen = Unchosen.of(instance, configuration, sums, stages, zeros, held_up=held_up, part_sums=part_sums)
    made: dict[str, ModeArrays] = {}

    def table(choice: Choice) -> ChoiceTable:
        if choice.recompute not in made:
            made[choice.recompute] = mode_arrays(sums, stages, choice.recompute)
        return unchosen.table(choice.zero, made[choice.recompute])

    if instance.space.partial:
        from nest.solve.dp.parts import distinct_choices

        choices = distinct_choices(sums.modes, choices, stages)
    tables = [table(choice) for choice in choices]
    if not any(table.ports is not None and table.ports.tight.any() for table in tables):
        tables = [table._replace(ports=None) for table in tables]
    rows_left = list(range(len(tables))) if every_choice else not_dominated(tables)
    return StageTables(
        tuple(choices[index] for index in rows_left),
        tuple(tables[index] for index in rows_left),
        pairs,
        capacity,
        sums.compute.whole if quickest is None else quickest,
    )
