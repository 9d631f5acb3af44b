"""Stage times and memory as arrays over pairs of nested downsets (PROBLEM.md section 4).

Each pair stands for the stage that runs the layers of the larger downset outside the smaller.
"""

from collections.abc import Sequence
from typing import Any

import numpy
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from nest.instance import Array, Instance
from nest.solve.dp.candidate_sums import CandidateSums
from nest.solve.dp.choices import Choice, ChoiceTable, not_dominated
from nest.solve.dp.pairs import Pairs, Rows, Stages
from nest.solve.dp.ports import Ports
from nest.solve.dp.sums import Sums
from nest.solve.dp.zero import ZeroTable
from nest.tolerances import LIMIT_SLACK, SEARCHED_MEMORY_SLACK

FEW_NUMBERS = 2**16
"""Choices times kinds of stages up to which all choices are computed at once: with so few numbers calls are what takes
time. Of more, one choice at a time spares memory."""


@frozen(eq=False)
class StageTables:
    """Every choice of every kind of stage, for one candidate, number of replicas and rank order.

    Attributes:
        choices: what a stage may choose, preferred first.
        tables: the table of each choice.
        pairs: the stages; the tables run over their kinds.
        capacity: bytes a stage may use, rounding allowed for.
        compute: seconds of forward and backward at least, shape `(downsets,)`.
    """

    choices: tuple[Choice, ...]
    tables: tuple[ChoiceTable, ...]
    pairs: Pairs
    capacity: float
    compute: Array
    _most_in_flight: list[NDArray[numpy.int64]] = field(factory=list, repr=False)
    _parts: list[ChoiceTable] = field(factory=list, repr=False)

    @property
    def parts(self) -> list[ChoiceTable]:
        """The tables of arrays of shape `(choices, kinds)`: of all choices where numbers are few, else of one each."""
        if not self._parts and self.tables and len(self.tables) * self.kinds <= FEW_NUMBERS:
            self._parts.append(ChoiceTable.stacked(self.tables))
        return self._parts or [table.at(None) for table in self.tables]

    @property
    def bytes(self) -> int:
        """Memory the tables and the pairs take."""
        arrays: list[NDArray[Any]] = [self.pairs.larger, self.pairs.smaller]
        arrays += [] if self.pairs.kind is None else [self.pairs.kind]
        for table in self.tables:
            arrays += [table.time, table.sync, table.first, table.more]
            arrays += [] if table.ports is None else table.ports.arrays
        return sum({id(array): array.nbytes for array in arrays}.values())

    @property
    def kinds(self) -> int:
        """How many kinds of stages there are."""
        return len(self.pairs.distinct)

    @property
    def ports(self) -> bool:
        """Whether the ports of some stages may hold them up."""
        return any(table.ports is not None for table in self.tables)

    def same_fits(self, in_flight: float) -> float:
        """A number that is equal for numbers of micro-batches in flight with which the same choices fit memory."""
        if in_flight != int(in_flight):
            return -in_flight
        if not self._most_in_flight:
            most = [numpy.unique(part.most_in_flight(self.capacity)) for part in self.parts]
            self._most_in_flight.append(most[0] if len(most) == 1 else numpy.unique(numpy.concatenate(most)))
        return int(numpy.searchsorted(self._most_in_flight[0], in_flight))

    def best(self, in_flight: float, sync_limit: float) -> tuple[Array, Array, NDArray[numpy.int16]]:
        """Fastest choice of each kind of stage that fits memory and synchronises within `sync_limit` seconds.

        Ports and boundaries aside: with them another may be faster (`nest.solve.dp.fastest`).

        Returns:
            Seconds per micro-batch (infinite where nothing fits), seconds once per batch, index of the choice.
            Among equally fast choices the one that synchronises fastest is taken, then the preferred one.
        """
        time, sync = numpy.full(self.kinds, numpy.inf), numpy.full(self.kinds, numpy.inf)
        choice = numpy.zeros(self.kinds, dtype=numpy.int16)
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
        """Least seconds per micro-batch, and once per batch, of each kind of stage over the choices that fit memory.

        Each on its own and ports aside, infinite where nothing fits.
        """
        time, sync = numpy.full(self.kinds, numpy.inf), numpy.full(self.kinds, numpy.inf)
        for part in self.parts:
            fits = part.fits(in_flight, self.capacity)
            numpy.minimum(time, part.time.min(axis=0, where=fits, initial=numpy.inf), out=time)
            numpy.minimum(sync, part.sync.min(axis=0, where=fits, initial=numpy.inf), out=sync)
        return time, sync

    def least_memory(self, in_flight: float) -> Array:
        """Least memory of each kind of stage over the choices, bytes."""
        least = numpy.full(self.kinds, numpy.inf)
        for table in self.tables:
            numpy.minimum(least, table.first + (in_flight - 1) * table.more, out=least)
        return least

    def window(self, after: int, before: int, time_limit: float) -> Rows:
        """The stages with `after` stages behind them and up to `before` in front, none of which may take longer.

        A downset that computes for longer than its stages may take together, or leaves more than that to the others,
        is the larger of none of them.
        """
        if time_limit == numpy.inf:
            return self.pairs.rows(0, self.pairs.count - 1)
        slack = time_limit * (1 + LIMIT_SLACK)
        possible = (self.compute <= (after + 1) * slack) & (self.compute[-1] - self.compute <= before * slack)
        indices = numpy.flatnonzero(possible)
        return self.pairs.rows(int(indices[0]), int(indices[-1])) if len(indices) else self.pairs.rows(0, -1)

    def within(self, time_limit: float) -> "StageTables":
        """The stages that fit memory with one micro-batch in flight and take at most `time_limit` seconds."""
        kept = numpy.zeros(self.kinds, dtype=bool)
        parts = self.parts
        for part in parts:
            kept |= ((part.first <= self.capacity) & (part.floor <= time_limit)).any(axis=0)
        if kept.all():
            return self
        left = [part.at((slice(None), kept)) for part in parts]
        tables = tuple(part.at(choice) for part in left for choice in range(len(part.time)))
        return StageTables(self.choices, tables, self.pairs.only_kinds(kept), self.capacity, self.compute)


def stage_tables(
    instance: Instance,
    sums: CandidateSums,
    pairs: Pairs,
    zeros: dict[int, ZeroTable],
    choices: Sequence[Choice],
    micro_batches: int | None,
    quickest: Array | None = None,
) -> StageTables:
    """Tables of the given choices over the kinds of `pairs`, as `zeros` are; a choice that never helps is left out.

    Args:
        instance: the problem.
        sums: the candidate.
        pairs: the stages.
        zeros: what each ZeRO stage adds.
        choices: what a stage may choose, preferred first.
        micro_batches: `M`; None: ports hold nothing up that is sent once per batch, for a bound from below.
        quickest: seconds each downset computes at least, whatever its stages use; left out, the candidate's.
    """
    stages = pairs.distinct
    compute = sums.compute.over(stages)
    reserve, exposed, hiding = instance.cluster.reserve, instance.space.exposed, instance.space.hiding
    often = instance.space.often_exposed
    # Where nothing depends on compute, the choices of one ZeRO stage share their arrays.
    space = instance.space
    waiting = {n: space.synchronisation * (space.sharded_synchronisation if n else 1.0) for n in zeros}
    waited = {n: waiting[n] * each.once[0] for n, each in zeros.items()}
    shown = {} if hiding else {n: (often * z.often[0], exposed * waited[n] + z.update) for n, z in zeros.items()}
    modes = {name: _mode_arrays(sums, stages, name) for name in {each.recompute for each in choices}}
    tables = []
    for choice in choices:
        extra, first, more = modes[choice.recompute]
        zero, work = zeros[choice.zero], compute + extra
        if hiding:
            time = _left(zero.often[0], work, often)
            sync = _left(waited[choice.zero], work, exposed) + zero.update
        else:
            time, sync = shown[choice.zero]
        ports = None
        if sums.busy:
            busy = zero.often[1:] + _busy(sums.busy, stages) + _busy(sums.modes[choice.recompute].busy, stages)
            used = (zero.once[1:] > 0) & (exposed < 1)
            ports = Ports.of(busy, work + time, sync, waited[choice.zero] + zero.update, used, micro_batches)
        tables.append(ChoiceTable(work + time, sync, zero.memory + first + reserve, more, ports))
    if not any(table.ports is not None and table.ports.tight.any() for table in tables):
        tables = [evolve(table, ports=None) for table in tables]
    kept = not_dominated(tables)
    return StageTables(
        tuple(choices[index] for index in kept),
        tuple(tables[index] for index in kept),
        pairs,
        instance.cluster.memory * (1 + SEARCHED_MEMORY_SLACK),
        sums.compute.whole if quickest is None else quickest,
    )


def _left(communication: Array, work: Array, exposed: float) -> Array:
    """Seconds of `communication` that show although it hides under `work`, at least the share `exposed`."""
    left: Array = numpy.maximum(exposed * communication, communication - work)
    return left


def _busy(busy: Sequence[Sums], stages: Stages) -> Array | float:
    """Seconds for which layers occupy the ports at each level, shape `(levels, stages)`; 0.0 where they say nothing."""
    return numpy.array([each.over(stages) for each in busy]) if busy else 0.0


def _mode_arrays(sums: CandidateSums, stages: Stages, name: str) -> tuple[Array, Array, Array]:
    """Seconds added, bytes of the first micro-batch with the peak, bytes of each further one."""
    mode = sums.modes[name]
    more = mode.more.over(stages)
    if mode.stash_inputs:
        more = more + sums.cut[stages.larger]
    first = mode.first.over(stages) + mode.peak.over(stages)
    return mode.extra.over(stages), first, more
