"""Times of stages with each ZeRO stage and recompute mode (PROBLEM.md section 4)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from nest.instance import Array, Cluster, CollectiveModel, Instance, Space, port_seconds
from nest.solve.dp.choices import ChoiceTable, Parts, Ports
from nest.solve.dp.configurations import Configuration
from nest.solve.dp.pairs import Stages
from nest.solve.dp.sums import CandidateSums, PartSums
from nest.solve.dp.zero import sharding


class ZeroTable(NamedTuple):
    """Costs of one ZeRO stage, for any hiding.

    Communication has a row of seconds and, if the candidate has ports, a row for each level of the seconds that a
    device's port is occupied (PROBLEM.md section 4, Ports).
    """

    often: Array  # Communication per micro-batch, shape `(rows, stages)`.
    once: Array  # Communication per batch, shape `(rows, stages)`.
    update: Array  # Seconds of the optimizer step, shape `(stages,)`.
    memory: Array  # Bytes of state and of its gathered part, shape `(stages,)`.
    gathering: Array  # Seconds of `often` in forward passes, which gather weights, shape `(stages,)`.


def zero_tables(
    instance: Instance, configuration: Configuration, sums: CandidateSums, stages: Stages, zeros: Sequence[int]
) -> dict[int, ZeroTable]:
    """Tables of each of the ZeRO stages `zeros` (the table of PROBLEM.md section 4)."""
    count, ports = len(stages), sums.candidate.busy is not None
    rows = 1 + len(instance.cluster.levels) if ports else 1
    tables = {zero: ZeroTable(*numpy.zeros((2, rows, count)), *numpy.zeros((3, count))) for zero in zeros}
    stride = configuration.size if configuration.rank_order == "pp-inner" else sums.candidate.width
    effective, copies = {instance.space.effective_zero(zero) for zero in tables}, configuration.copies
    for zero, table in tables.items():
        table.memory.fill(sums.candidate.gathered if zero >= 3 else 0.0)
    for group, *summed, pieces in sums.state:
        weights, gradients, optimizer, update = (each.over(stages) for each in summed)
        decided = (stride, configuration.replicas, group.ranks, configuration.zero_degree)
        shared = sharding(instance.cluster.capacities, *decided)
        count = shared.count
        # What several ZeRO stages send alike is priced once.
        if 1 in effective:
            scatter = _slowest(instance, "reduce_scatter", gradients, shared.shards, count, ports=ports)
        if not effective.isdisjoint({1, 2}):
            gather = _slowest(instance, "all_gather", weights, shared.shards, count, ports=ports)
        for asked, table in tables.items():
            zero = instance.space.effective_zero(asked)
            for sizes, least in ((weights, 3), (gradients, 2), (optimizer, 1)):
                held = sizes / count if zero >= least else sizes
                numpy.add(table.memory, held if copies == 1 else copies * held, out=table.memory)
            numpy.add(table.update, update / count if zero >= 1 else update, out=table.update)
            if zero >= 1 and shared.replicates:
                across = shared.members // count
                reduce = _slowest(instance, "all_reduce", gradients / count, shared.replicates, across, ports=ports)
                numpy.add(table.once, reduce, out=table.once)
            if zero == 0:
                reduce = _slowest(instance, "all_reduce", gradients, (shared.whole,), shared.members, ports=ports)
                numpy.add(table.once, reduce, out=table.once)
            elif zero == 1:
                numpy.add(table.once, scatter + gather, out=table.once)
            else:
                calls = numpy.ones(len(stages)) if pieces is None else numpy.maximum(pieces.over(stages), 1.0)
                each = _slowest(instance, "reduce_scatter", gradients / calls, shared.shards, count, ports=ports)
                numpy.add(table.often, calls * each, out=table.often)
                if zero == 2:
                    numpy.add(table.once, gather, out=table.once)
                    continue
                each = _slowest(instance, "all_gather", weights / calls, shared.shards, count, ports=ports)
                numpy.add(table.often, 2 * calls * each, out=table.often)
                numpy.add(table.gathering, calls * each[0], out=table.gathering)
    return tables


def _slowest(
    instance: Instance, kind: str, sizes: Array, shapes: Sequence[tuple[int, ...]], members: int, *, ports: bool
) -> Array:
    """Rows of `ZeroTable` for every entry of `sizes`: until all parallel groups of these shapes are done."""
    every = [collective_times(instance.collectives, kind, sizes, shape, members, instance.cluster) for shape in shapes]
    seconds = every[0] if len(every) == 1 else numpy.maximum.reduce(every)
    if not ports:
        return seconds[None]
    # Sizes repeat, and a model may be asked for one at a time.
    distinct, inverse = numpy.unique(sizes, return_inverse=True)
    model, levels = instance.collectives, instance.cluster.levels
    occupied = [port_seconds(model, kind, distinct, shape, levels, members) for shape in shapes]
    return numpy.concatenate([seconds[None], numpy.maximum.reduce(occupied)[:, inverse.reshape(-1)]])


def collective_times(
    model: CollectiveModel, kind: str, sizes: Array, shape: tuple[int, ...], members: int, cluster: Cluster
) -> Array:
    """Seconds of one collective for every entry of `sizes` (bytes); 0 for 0 bytes.

    A model may offer `times` for arrays of sizes; else each distinct size is priced once.
    """
    some = sizes > 0
    if not some.all():
        result = numpy.zeros(len(sizes))
        if some.any():
            result[some] = collective_times(model, kind, sizes[some], shape, members, cluster)
        return result
    vectorised: Any = getattr(model, "times", None)
    if vectorised is not None:
        seconds = vectorised(kind, sizes, shape, cluster.levels, members=members)
        return numpy.asarray(seconds, dtype=numpy.float64)
    distinct, inverse = numpy.unique(sizes, return_inverse=True)
    seconds = [model.time(kind, float(size), shape, cluster.levels, members=members) for size in distinct]
    return numpy.array(seconds)[inverse]


class ModeArrays(NamedTuple):
    """Costs of stages by recompute mode; another dimension before stages for several modes."""

    extra: Array  # Seconds added to the backward pass.
    first: Array  # Bytes of the first micro-batch, with the peak.
    more: Array  # Bytes of each further one.
    busy: Array | float  # By level, seconds that ports are occupied; 0.0 if unknown.


@frozen(eq=False, repr=False)
class Unchosen:
    """Costs of stages independent of their choices; arrays end with shape `(stages,)`."""

    space: Space
    reserve: float  # Unusable bytes of every device.
    hides: bool  # Messages hide under compute.
    free_of: int | None  # Micro-batches in which ports are free; None: nothing is delayed.
    compute: Array  # Seconds of forward and backward passes.
    zeros: Mapping[int, ZeroTable]  # Tables of ZeRO stages.
    once: Mapping[int, Array]  # Exposed seconds per batch of each.
    busy: Array | None  # By level, seconds that ports are occupied; None: the candidate has no ports.
    # Seconds of forward passes, input gradients and weight gradients; None: not needed.
    parts: tuple[Array, ...] | None
    _constant: dict[int, tuple[Array, Array]] = field(factory=dict, init=False)

    @classmethod
    def of(
        cls,
        instance: Instance,
        configuration: Configuration,
        sums: CandidateSums,
        stages: Stages,
        zeros: Collection[int],
        *,
        held_up: bool = True,
        part_sums: PartSums | None = None,
    ) -> Unchosen:
        """Costs of a candidate's stages; arguments as in `stage_tables`."""
        space = instance.space
        tables = zero_tables(instance, configuration, sums, stages, sorted(zeros))
        waiting = {n: space.synchronisation * (space.sharded_synchronisation if n else 1.0) for n in tables}
        return cls(
            space,
            instance.cluster.reserve,
            space.hides(configuration.schedule.name),
            configuration.micro_batches if held_up else None,
            sums.compute.over(stages),
            tables,
            {n: waiting[n] * each.once[0] for n, each in tables.items()},
            numpy.array([each.over(stages) for each in sums.busy]) if sums.busy else None,
            None if part_sums is None else tuple(each.over(stages) for each in part_sums),
        )

    def of_stages(self, places: NDArray[numpy.int64]) -> Unchosen:
        """Select stages."""

        def some(array: Array) -> Array:
            return array.take(places, axis=-1)

        return evolve(
            self,
            compute=some(self.compute),
            zeros={zero: ZeroTable(*map(some, table)) for zero, table in self.zeros.items()},
            once={zero: some(array) for zero, array in self.once.items()},
            busy=None if self.busy is None else some(self.busy),
            parts=None if self.parts is None else tuple(map(some, self.parts)),
        )

    def table(self, asked: int, mode: ModeArrays) -> ChoiceTable:
        """Table of stages with a ZeRO stage and one or several recompute modes."""
        zero, work, once, space = self.zeros[asked], self.compute + mode.extra, self.once[asked], self.space
        if space.hiding:
            time = _exposed(zero.often[0], work, space.often_exposed)
            sync = _exposed(once, work, space.exposed) + zero.update
        else:
            # Where nothing depends on compute, the choices of one ZeRO stage share their arrays.
            if asked not in self._constant:
                self._constant[asked] = space.often_exposed * zero.often[0], space.exposed * once + zero.update
            time, sync = self._constant[asked]
        ports = None
        if self.busy is not None:
            # Levels stand in front of modes.
            by_level = (slice(None), *[None] * (work.ndim - 1))
            busy = zero.often[1:][by_level] + self.busy[by_level] + mode.busy
            used = (zero.once[1:][by_level] > 0) & (space.exposed < 1)
            ports = Ports.of(
                busy, work + time, sync, once + zero.update, used, self.free_of, work if self.hides else 0.0
            )
        parts = None if self.parts is None else self._parts(zero, time, mode.extra, work)
        return ChoiceTable(work + time, sync, zero.memory + mode.first + self.reserve, mode.more, ports, parts)

    def _parts(self, zero: ZeroTable, sharding: Array, extra: Array, work: Array) -> Parts:
        """Times of a choice by part; `sharding` is exposed ZeRO communication."""
        assert self.parts is not None
        forward, inputs, weights = self.parts
        often = zero.often[0]
        gathering = sharding * numpy.divide(zero.gathering, often, out=numpy.zeros_like(often), where=often > 0)
        return Parts(forward + gathering, inputs + extra + (sharding - gathering), weights, work, self.hides)


def _exposed(communication: Array, work: Array, share: float) -> Array:
    """Exposed seconds of `communication` that overlaps with `work`, at least that share."""
    left: Array = numpy.maximum(share * communication, communication - work)
    return left


def mode_arrays(sums: CandidateSums, stages: Stages, name: str) -> ModeArrays:
    """Costs of stages with one recompute mode."""
    mode = sums.modes[name]
    more = mode.more.over(stages)
    if mode.stash_inputs:
        stashed = True if mode.stash_inputs is True else mode.stash_inputs.over(stages) > 0
        more = more + numpy.where(stashed, sums.cut.take(stages.larger), 0.0)
    first = mode.first.over(stages) + mode.peak.over(stages)
    # Layers may say nothing of ports.
    busy = numpy.array([each.over(stages) for each in mode.busy]) if mode.busy else 0.0
    return ModeArrays(mode.extra.over(stages), first, more, busy)
