"""Stage times and memory as arrays over pairs of nested downsets (PROBLEM.md section 4).

Each pair stands for the stage that runs the layers of the larger downset outside the smaller.
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

SMALL_COUNTS = 2**16
"""Micro-batches in flight from which on numbers are told apart by sorting them."""


@frozen(eq=False, repr=False, slots=False)
class StageTables:
    """Every choice of every class of stages, for one candidate, number of replicas and rank order.

    Attributes:
        choices: what a stage may choose, preferred first.
        tables: the table of each choice.
        pairs: the stages; the tables run over their classes.
        capacity: bytes a stage may use, rounding allowed for.
        compute: seconds of forward and backward at least, shape `(downsets,)`.
    """

    choices: tuple[Choice, ...]
    tables: tuple[ChoiceTable, ...]
    pairs: Pairs
    capacity: float
    compute: Array
    _most_in_flight: list[NDArray[numpy.int64]] = field(factory=list, repr=False)
    _fits: dict[float, float] = field(factory=dict, repr=False)

    @property
    def bytes(self) -> int:
        """Memory the tables and the pairs take."""
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
        """How many classes of stages there are."""
        return len(self.pairs.distinct)

    @property
    def ports(self) -> bool:
        """Whether the ports of some stages may hold them up."""
        return any(table.ports is not None for table in self.tables)

    @property
    def parted(self) -> bool:
        """Whether their times are known by parts."""
        return any(table.parts is not None for table in self.tables)

    def same_fits(self, in_flight: float) -> float:
        """A number that is equal for numbers of micro-batches in flight with which the same choices fit memory."""
        if in_flight not in self._fits:
            if not self._most_in_flight:
                self._most_in_flight.append(_distinct([table.most_in_flight(self.capacity) for table in self.tables]))
            whole = in_flight == int(in_flight)
            self._fits[in_flight] = int(self._most_in_flight[0].searchsorted(in_flight)) if whole else -in_flight
        return self._fits[in_flight]

    def best(self, in_flight: float, sync_limit: float) -> tuple[Array, Array, NDArray[numpy.int16]]:
        """Fastest choice of each class of stages that fits memory and synchronises within `sync_limit` seconds.

        Ports and boundaries aside: with them another may be faster (`nest.solve.dp.stages`).

        Returns:
            Seconds per micro-batch (infinite where nothing fits), seconds once per batch, index of the choice.
            Among equally fast choices the one that synchronises fastest is taken, then the preferred one.
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
        """Least seconds per micro-batch, and once per batch, of each class of stages over the choices that fit memory.

        Each on its own and ports aside, infinite where nothing fits.
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
        """The stages with `after` stages behind them and up to `before` in front, none of which may take longer."""
        if self.ascending is None or time_limit == numpy.inf:
            return window(self.pairs, self.compute, after, before, time_limit)
        slack = time_limit * (1 + LIMIT_SLACK)
        last = int(self.compute.searchsorted((after + 1) * slack, side="right")) - 1
        return self.pairs.rows(int(self.ascending.searchsorted(-before * slack)), last)

    def windows(self, stages: int, time_limit: float) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64]]:
        """The first and the last downset that each of so many stages may be from, counted from the last stage.

        None of them may take longer than `time_limit` seconds. Only where downsets ascend.
        """
        assert self.ascending is not None
        after, slack = numpy.arange(stages), time_limit * (1 + LIMIT_SLACK)
        if time_limit == numpy.inf:
            return numpy.zeros(stages, dtype=numpy.int64), numpy.full(stages, self.pairs.count - 1)
        last = self.compute.searchsorted((after + 1) * slack, side="right") - 1
        return self.ascending.searchsorted(-(stages - 1 - after) * slack), last

    @cached_property
    def ascending(self) -> Array | None:
        """Seconds that each downset computes less than all layers do, negative; None where they do not ascend."""
        return self.compute - self.compute[-1] if (numpy.diff(self.compute) >= 0).all() else None

    @property
    def in_line(self) -> bool:
        """Whether a band and how long downsets compute say which stages there are (`nest.solve.dp.line`)."""
        return self.pairs.band is not None and self.ascending is not None

    def within(self, time_limit: float) -> StageTables:
        """The stages that fit memory with one micro-batch in flight and take at most `time_limit` seconds."""
        mask = numpy.zeros(self.classes, dtype=bool)
        for table in self.tables:
            mask |= (table.first <= self.capacity) & (table.floor <= time_limit)
        return self._of_classes(mask)

    def choosing(self, choices: Sequence[Choice]) -> StageTables | None:
        """The same for stages that may choose some of `choices` only; None: one of these was left out."""
        places = [self.choices.index(each) for each in choices if each in self.choices]
        if len(places) < len(choices):
            return None
        tables = tuple(self.tables[place] for place in places)
        return StageTables(tuple(choices), tables, self.pairs, self.capacity, self.compute)

    def only(self, mask: NDArray[numpy.bool_]) -> StageTables:
        """The stages for which `mask`, one for each of the pairs, is true."""
        if self.pairs.classes is None:
            return self._of_classes(mask)
        left = numpy.zeros(self.classes, dtype=bool)
        left[self.pairs.classes[mask]] = True
        tables = self._of_classes(left)
        return evolve(tables, pairs=tables.pairs.only(mask[left[self.pairs.classes]]))

    def _of_classes(self, mask: NDArray[numpy.bool_]) -> StageTables:
        """The stages of the classes for which `mask` is true."""
        if mask.all():
            return self
        places = numpy.flatnonzero(mask)
        tables = tuple(table.of_classes(places) for table in self.tables)
        # What fits is told apart for fewer classes as finely as for all.
        alike = list(self._most_in_flight)
        return StageTables(self.choices, tables, self.pairs.only_classes(mask), self.capacity, self.compute, alike)


def _distinct(counts: Sequence[NDArray[numpy.int64]]) -> NDArray[numpy.int64]:
    """The distinct numbers among counts of 0 or more, ascending: most are small, so that none need be sorted."""
    met = numpy.zeros(SMALL_COUNTS, dtype=bool)
    large = []
    for each in counts:
        small = each < SMALL_COUNTS
        met[each[small]] = True
        large.append(each[~small])
    return numpy.concatenate([numpy.flatnonzero(met), distinct(numpy.concatenate(large))])


def window(pairs: Pairs, compute: Array, after: int, before: int, time_limit: float) -> Rows:
    """The stages with `after` stages behind them and up to `before` in front, none of which may take longer.

    A downset that computes for longer than its stages may take together, or leaves more than that to the others, is the
    larger of none of them.

    Args:
        pairs: all stages.
        compute: seconds of forward and backward at least, shape `(downsets,)`.
        after: number of stages behind.
        before: most stages in front.
        time_limit: most seconds per micro-batch of a stage.
    """
    if time_limit == numpy.inf:
        return pairs.rows(0, pairs.count - 1)
    slack = time_limit * (1 + LIMIT_SLACK)
    possible = (compute <= (after + 1) * slack) & (compute[-1] - compute <= before * slack)
    indices = numpy.flatnonzero(possible)
    return pairs.rows(int(indices[0]), int(indices[-1])) if len(indices) else pairs.rows(0, -1)


@define(eq=False, repr=False)
class RecentTables(Generic[T]):
    """Tables of the stages that are fast enough, those used last: `MOST_BYTES` in all."""

    _known: BoundedCache[tuple[float, T, int]] = field(
        factory=lambda: BoundedCache(MOST_BYTES, itemgetter(2)), init=False
    )

    def of(self, key: Hashable, time_limit: float, make: Callable[[], tuple[T, int]]) -> tuple[T, bool]:
        """Tables of at least the stages of at most `time_limit` seconds, and whether they are of no others.

        `make` makes those, and says how many bytes they take.
        """
        found = self._known.get(key)
        if found is None or found[0] < time_limit:
            found = self.keep(key, time_limit, *make())
        return found[1], found[0] == time_limit

    def keep(self, key: Hashable, time_limit: float, tables: T, size: int) -> tuple[float, T, int]:
        """Note tables of `size` bytes, with at least the stages of at most `time_limit` seconds."""
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
    """Tables of the given choices over the classes of `pairs`; a choice that never helps is left out.

    Args:
        instance: the problem.
        configuration: what is decided beside stages.
        sums: the candidate.
        pairs: the stages.
        choices: what a stage may choose, preferred first.
        held_up: whether ports hold up what is sent once per batch; if not, the figures are a bound from below.
        quickest: seconds each downset computes at least, whatever its stages use; left out, the candidate's.
        part_sums: the candidate's times by parts, where the schedule asks for them.
        every_choice: whether choices that never help are kept.
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
