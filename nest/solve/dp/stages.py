"""Stage times and memory as arrays over pairs of nested downsets (PROBLEM.md section 4).

Each pair stands for the stage that runs the layers of the larger downset outside the smaller.
"""

from collections.abc import Sequence
from typing import Any

import numpy
from attrs import field, frozen
from numpy.typing import NDArray

from nest.instance import Array, Candidate, Cluster, CollectiveModel, Instance, ParameterGroup
from nest.solve.dp.choices import Choice, ChoiceTable, not_dominated
from nest.solve.dp.downsets import Downsets
from nest.solve.dp.largest import AlongRuns, ByValue, largest
from nest.solve.dp.pairs import Pairs, Rows, Stages
from nest.solve.dp.placement import sharing
from nest.solve.dp.sums import Sums, sums_of
from nest.tolerances import LIMIT_SLACK, SEARCHED_MEMORY_SLACK

FEW_NUMBERS = 2**16
"""Choices times kinds of stages up to which all choices are computed at once: with so few numbers calls are what takes
time. Of more, one choice at a time spares memory."""


@frozen(eq=False)
class ModeSums:
    """A recompute mode summed over downsets.

    Attributes:
        extra: seconds added to the backward pass.
        first: bytes for one in-flight micro-batch, infinite where a layer cannot run in this mode.
        more: bytes for each further one.
        peak: transient bytes, of which a stage takes the largest of its layers.
        stash_inputs: whether a stage keeps its inputs for each further micro-batch.
    """

    extra: Sums
    first: Sums
    more: Sums
    peak: ByValue | AlongRuns
    stash_inputs: bool


@frozen(eq=False)
class CandidateSums:
    """A candidate summed over downsets, whatever the replicas and their order.

    Attributes:
        candidate: the candidate.
        cut: bytes that enter each downset, shape `(downsets,)`.
        compute: forward and backward seconds.
        modes: the recompute modes allowed, by name.
        state: by parameter group, the weights, gradients, optimizer bytes and update seconds.
    """

    candidate: Candidate
    cut: Array
    compute: Sums
    modes: dict[str, ModeSums]
    state: tuple[tuple[ParameterGroup, Sums, Sums, Sums, Sums], ...]


def candidate_sums(instance: Instance, candidate: Candidate, downsets: Downsets) -> CandidateSums:
    """Sums of `candidate` over `downsets`."""
    allowed = instance.space.recompute
    chosen = [mode for mode in candidate.recompute if allowed is None or mode.name in allowed]
    rows = [candidate.forward + candidate.backward]
    rows += [row for mode in chosen for row in (mode.extra, mode.first, mode.more)]
    rows += [
        row for group in candidate.state for row in (group.weights, group.gradients, group.optimizer, group.update)
    ]
    compute, *summed = sums_of(rows, downsets)
    of_modes = [summed[place : place + 3] for place in range(0, 3 * len(chosen), 3)]
    of_groups = [summed[place : place + 4] for place in range(3 * len(chosen), len(summed), 4)]
    modes = {
        mode.name: ModeSums(extra, first, more, largest(downsets, mode.peak), mode.stash_inputs)
        for mode, (extra, first, more) in zip(chosen, of_modes, strict=True)
    }
    state = tuple(
        (group, weights, gradients, optimizer, update)
        for group, (weights, gradients, optimizer, update) in zip(candidate.state, of_groups, strict=True)
    )
    return CandidateSums(candidate, cuts(instance, candidate, downsets), compute, modes, state)


def cuts(instance: Instance, candidate: Candidate, downsets: Downsets) -> Array:
    """`cut(D)` of PROBLEM.md section 4 for every downset, bytes."""
    cut: Array = downsets.crossing(instance.graph.tensors) @ candidate.tensor_bytes
    return cut


@frozen(eq=False)
class ZeroTable:
    """What one ZeRO stage adds; arrays of shape `(stages,)`.

    Attributes:
        time: seconds of communication per micro-batch, whatever hides.
        sync: seconds of communication once per batch, whatever hides.
        update: seconds of the optimizer step.
        memory: bytes of state, and of what is gathered of it.
    """

    time: Array
    sync: Array
    update: Array
    memory: Array


def zero_tables(
    instance: Instance,
    sums: CandidateSums,
    stages: Stages,
    replicas: int,
    rank_order: str,
    size: int,
    zeros: Sequence[int],
    zero_degree: int | None = None,
) -> dict[int, ZeroTable]:
    """Communication, update and state memory of each ZeRO stage (the table of PROBLEM.md section 4).

    `size` is the number of devices of a replica, `zero_degree` that of a shard group; None: all.
    """
    found = {zero: ZeroTable(*(numpy.zeros(len(stages)) for _ in range(4))) for zero in zeros}
    for zero, table in found.items():
        table.memory.fill(sums.candidate.gathered if zero >= 3 else 0.0)
    for group, *summed in sums.state:
        weights, gradients, optimizer, update = (each.over(stages) for each in summed)
        stride = size if rank_order == "pp-inner" else sums.candidate.width
        shared = sharing(instance.cluster, stride, replicas, group.ranks, zero_degree)
        count = shared.count
        if any(found):  # ZeRO 0 does neither.
            scatter = _slowest(instance, "reduce_scatter", gradients, shared.shards, count)
            gather = _slowest(instance, "all_gather", weights, shared.shards, count)
        for zero, table in found.items():
            numpy.add(table.memory, weights / count if zero >= 3 else weights, out=table.memory)
            numpy.add(table.memory, gradients / count if zero >= 2 else gradients, out=table.memory)
            numpy.add(table.memory, optimizer / count if zero >= 1 else optimizer, out=table.memory)
            numpy.add(table.update, update / count if zero >= 1 else update, out=table.update)
            if zero >= 1 and shared.replicates:
                across = shared.members // count
                reduce = _slowest(instance, "all_reduce", gradients / count, shared.replicates, across)
                numpy.add(table.sync, reduce, out=table.sync)
            if zero == 0:
                reduce = _slowest(instance, "all_reduce", gradients, (shared.whole,), shared.members)
                numpy.add(table.sync, reduce, out=table.sync)
            elif zero == 1:
                numpy.add(table.sync, scatter + gather, out=table.sync)
            elif zero == 2:
                numpy.add(table.time, scatter, out=table.time)
                numpy.add(table.sync, gather, out=table.sync)
            else:
                numpy.add(table.time, scatter + 2 * gather, out=table.time)
    return found


def _slowest(instance: Instance, kind: str, sizes: Array, shapes: Sequence[tuple[int, ...]], members: int) -> Array:
    """Seconds for every entry of `sizes` until groups of these shapes, which work side by side, are all done.

    Each group has so many members.
    """
    every = [collective_times(instance.collectives, kind, sizes, shape, members, instance.cluster) for shape in shapes]
    return every[0] if len(every) == 1 else numpy.maximum.reduce(every)


def collective_times(
    model: CollectiveModel, kind: str, sizes: Array, shape: tuple[int, ...], members: int, cluster: Cluster
) -> Array:
    """Seconds of one collective for every entry of `sizes` (bytes); no bytes take none.

    A model may offer `times`, which takes an array of sizes; else each distinct size is asked for once.
    """
    some = sizes > 0
    if not some.all():
        found = numpy.zeros(len(sizes))
        if some.any():
            found[some] = collective_times(model, kind, sizes[some], shape, members, cluster)
        return found
    vectorised: Any = getattr(model, "times", None)
    if vectorised is not None:
        seconds = vectorised(kind, sizes, shape, cluster.levels, members=members)
        return numpy.asarray(seconds, dtype=numpy.float64)
    distinct, inverse = numpy.unique(sizes, return_inverse=True)
    seconds = [model.time(kind, float(size), shape, cluster.levels, members=members) for size in distinct]
    return numpy.array(seconds)[inverse]


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
        return sum({id(array): array.nbytes for array in arrays}.values())

    @property
    def kinds(self) -> int:
        """How many kinds of stages there are."""
        return len(self.pairs.distinct)

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

        Each on its own, infinite where nothing fits.
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
            kept |= ((part.first <= self.capacity) & (part.time <= time_limit)).any(axis=0)
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
    quickest: Array | None = None,
) -> StageTables:
    """Tables of the given choices over the kinds of `pairs`, as `zeros` are; a choice that never helps is left out.

    `quickest` are the seconds each downset computes at least, whatever its stages use; left out, the candidate's.
    """
    stages = pairs.distinct
    compute = sums.compute.over(stages)
    reserve, exposed, hiding = instance.cluster.reserve, instance.space.exposed, instance.space.hiding
    # Where nothing depends on compute, the choices of one ZeRO stage share their arrays.
    space = instance.space
    waiting = {n: space.synchronisation * (space.sharded_synchronisation if n else 1.0) for n in zeros}
    waited = {n: waiting[n] * each.sync for n, each in zeros.items()}
    shown = {} if hiding else {n: (exposed * z.time, exposed * waited[n] + z.update) for n, z in zeros.items()}
    modes = {name: _mode_arrays(sums, stages, name) for name in {each.recompute for each in choices}}
    tables = []
    for choice in choices:
        extra, first, more = modes[choice.recompute]
        zero, work = zeros[choice.zero], compute + extra
        if hiding:
            time, sync = _left(zero.time, work, exposed), _left(waited[choice.zero], work, exposed) + zero.update
        else:
            time, sync = shown[choice.zero]
        tables.append(ChoiceTable(work + time, sync, zero.memory + first + reserve, more))
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


def _mode_arrays(sums: CandidateSums, stages: Stages, name: str) -> tuple[Array, Array, Array]:
    """Seconds added, bytes of the first micro-batch with the peak, bytes of each further one."""
    mode = sums.modes[name]
    more = mode.more.over(stages)
    if mode.stash_inputs:
        more = more + sums.cut[stages.larger]
    first = mode.first.over(stages) + mode.peak.over(stages)
    return mode.extra.over(stages), first, more
