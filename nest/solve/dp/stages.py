"""Stage times and memory as arrays over pairs of downsets (PROBLEM.md section 4).

Throughout, `[D, E]` stands for the stage that runs the layers of downset `D` outside downset `E`.
"""

from collections.abc import Sequence
from typing import Any

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.instance import Array, Candidate, Cluster, CollectiveModel, Instance, ParameterGroup
from nest.solve.dp.downsets import Downsets
from nest.solve.dp.placement import reduction_members

MEMORY_SLACK = 1e-12
"""Relative rounding allowed when memory is compared with capacity: sums are taken in different orders."""


@frozen
class Choice:
    """What a stage chooses for itself.

    Attributes:
        recompute: name of a recompute mode.
        zero: ZeRO stage.
    """

    recompute: str
    zero: int


@frozen(eq=False)
class ChoiceTable:
    """One choice, for every stage; arrays of shape `(downsets, downsets)`.

    Attributes:
        time: seconds per micro-batch without the boundaries.
        sync: seconds once per batch.
        first: bytes with one micro-batch in flight, the reserve included.
        more: bytes of each further one.
    """

    time: Array
    sync: Array
    first: Array
    more: Array

    def dominates(self, other: "ChoiceTable") -> bool:
        """Whether no stage is better off with `other`."""
        return all(
            bool((mine <= theirs).all())
            for mine, theirs in (
                (self.time, other.time),
                (self.sync, other.sync),
                (self.first, other.first),
                (self.more, other.more),
            )
        )


@frozen(eq=False)
class CandidateTables:
    """What a candidate's stages cost, whatever the replicas and their order.

    Attributes:
        candidate: the candidate.
        cut: bytes that enter each downset, shape `(downsets,)`.
        compute: forward and backward seconds.
        recompute: by mode name, seconds added, bytes of the first micro-batch with the peak, bytes of each further one.
        state: by parameter group, the summed weights, gradients, optimizer bytes and update seconds.
    """

    candidate: Candidate
    cut: Array
    compute: Array
    recompute: dict[str, tuple[Array, Array, Array]]
    state: tuple[tuple[ParameterGroup, Array, Array, Array, Array], ...]


def candidate_tables(instance: Instance, candidate: Candidate, downsets: Downsets) -> CandidateTables:
    """Tables of `candidate` over `downsets`."""
    cut = cuts(instance, candidate, downsets)
    modes: dict[str, tuple[Array, Array, Array]] = {}
    allowed = instance.space.recompute
    for mode in candidate.recompute:
        if allowed is not None and mode.name not in allowed:
            continue
        more = downsets.differences(mode.more)
        if mode.stash_inputs:
            more = more + cut[:, None]
        first = downsets.differences(mode.first) + downsets.largest(mode.peak)
        modes[mode.name] = (downsets.differences(mode.extra), first, more)
    state = tuple(
        (
            group,
            downsets.differences(group.weights),
            downsets.differences(group.gradients),
            downsets.differences(group.optimizer),
            downsets.differences(group.update),
        )
        for group in candidate.state
    )
    compute = downsets.differences(candidate.forward + candidate.backward)
    return CandidateTables(candidate, cut, compute, modes, state)


def cuts(instance: Instance, candidate: Candidate, downsets: Downsets) -> Array:
    """`cut(D)` of PROBLEM.md section 4 for every downset, bytes."""
    cut = numpy.zeros(downsets.count)
    for (producer, consumers), size in zip(instance.graph.tensors, candidate.tensor_bytes, strict=True):
        inside = downsets.members[:, list(consumers)].any(axis=1)
        cut += size * (~downsets.members[:, producer] & inside)
    return cut


@frozen(eq=False)
class ZeroTable:
    """What one ZeRO stage adds; arrays of shape `(downsets, downsets)`."""

    time: Array
    sync: Array
    memory: Array


def zero_tables(
    instance: Instance, tables: CandidateTables, replicas: int, rank_order: str, zeros: Sequence[int]
) -> dict[int, ZeroTable]:
    """Communication, update and state memory of each ZeRO stage (the table of PROBLEM.md section 4)."""
    shape = tables.compute.shape
    found = {zero: ZeroTable(numpy.zeros(shape), numpy.zeros(shape), numpy.zeros(shape)) for zero in zeros}
    exposed = instance.space.exposed
    for group, weights, gradients, optimizer, update in tables.state:
        members = reduction_members(instance.cluster, tables.candidate.width, replicas, rank_order, group.ranks)
        size = len(members)
        member_shape = instance.cluster.shape(members)
        scatter = exposed * collective_times(
            instance.collectives, "reduce_scatter", gradients, member_shape, instance.cluster
        )
        gather = exposed * collective_times(instance.collectives, "all_gather", weights, member_shape, instance.cluster)
        for zero, table in found.items():
            numpy.add(table.memory, weights / size if zero >= 3 else weights, out=table.memory)
            numpy.add(table.memory, gradients / size if zero >= 2 else gradients, out=table.memory)
            numpy.add(table.memory, optimizer / size if zero >= 1 else optimizer, out=table.memory)
            numpy.add(table.sync, update / size if zero >= 1 else update, out=table.sync)
            if zero == 0:
                numpy.add(table.sync, 2 * scatter, out=table.sync)
            elif zero == 1:
                numpy.add(table.sync, scatter + gather, out=table.sync)
            elif zero == 2:
                numpy.add(table.time, scatter, out=table.time)
                numpy.add(table.sync, gather, out=table.sync)
            else:
                numpy.add(table.time, scatter + 2 * gather, out=table.time)
    return found


def collective_times(
    model: CollectiveModel, kind: str, sizes: Array, shape: tuple[int, ...], cluster: Cluster
) -> Array:
    """Seconds of one collective for every entry of `sizes` (bytes).

    A model may offer `times`, which takes an array of sizes; else each distinct size is asked for once.
    """
    vectorised: Any = getattr(model, "times", None)
    if vectorised is not None:
        return numpy.asarray(vectorised(kind, sizes, shape, cluster.levels), dtype=numpy.float64)
    distinct, inverse = numpy.unique(sizes, return_inverse=True)
    seconds = numpy.array([model.time(kind, float(size), shape, cluster.levels) for size in distinct])
    return seconds[inverse].reshape(sizes.shape)


@frozen(eq=False)
class StageTables:
    """Every choice of every stage, for one candidate, number of replicas and rank order.

    Attributes:
        choices: what a stage may choose, preferred first.
        tables: the table of each choice.
        cut: bytes that enter each downset.
        capacity: bytes a stage may use, rounding allowed for.
        inside: which pairs are stages.
    """

    choices: tuple[Choice, ...]
    tables: tuple[ChoiceTable, ...]
    cut: Array
    capacity: float
    inside: NDArray[numpy.bool_]

    def best(self, in_flight: int, sync_limit: float) -> tuple[Array, Array, NDArray[numpy.int16]]:
        """Fastest choice of each stage that fits memory and synchronises within `sync_limit` seconds.

        Returns:
            Seconds per micro-batch (infinite where nothing fits), seconds once per batch, index of the choice.
            Among equally fast choices the one that synchronises fastest is taken, then the preferred one.
        """
        shape = self.inside.shape
        time, sync = numpy.full(shape, numpy.inf), numpy.full(shape, numpy.inf)
        choice = numpy.zeros(shape, dtype=numpy.int16)
        for index, table in enumerate(self.tables):
            fits = self.inside & (table.first + (in_flight - 1) * table.more <= self.capacity)
            if sync_limit < numpy.inf:
                fits &= table.sync <= sync_limit
            better = fits & ((table.time < time) | ((table.time == time) & (table.sync < sync)))
            numpy.copyto(time, table.time, where=better)
            numpy.copyto(sync, table.sync, where=better)
            choice[better] = index
        return time, sync, choice

    def least_sync(self, in_flight: int) -> Array:
        """Least synchronisation of each stage over the choices that fit memory, seconds."""
        least = numpy.full(self.inside.shape, numpy.inf)
        for table in self.tables:
            fits = self.inside & (table.first + (in_flight - 1) * table.more <= self.capacity)
            numpy.minimum(least, table.sync, out=least, where=fits)
        return least

    def least_memory(self, in_flight: int) -> Array:
        """Least memory of each stage over the choices, bytes; infinite where there is no stage."""
        least = numpy.full(self.inside.shape, numpy.inf)
        for table in self.tables:
            numpy.minimum(least, table.first + (in_flight - 1) * table.more, out=least, where=self.inside)
        return least


def stage_tables(
    instance: Instance,
    downsets: Downsets,
    tables: CandidateTables,
    zeros: dict[int, ZeroTable],
    choices: Sequence[Choice],
) -> StageTables:
    """Tables of the given choices; a choice that never helps is left out."""
    kept: list[tuple[Choice, ChoiceTable]] = []
    for choice in choices:
        extra, first, more = tables.recompute[choice.recompute]
        zero = zeros[choice.zero]
        table = ChoiceTable(
            tables.compute + extra + zero.time,
            zero.sync,
            zero.memory + first + instance.cluster.reserve,
            more,
        )
        if not any(other.dominates(table) for _, other in kept):
            kept = [(old, other) for old, other in kept if not table.dominates(other)]
            kept.append((choice, table))
    return StageTables(
        tuple(choice for choice, _ in kept),
        tuple(table for _, table in kept),
        tables.cut,
        instance.cluster.memory * (1 + MEMORY_SLACK),
        downsets.inside,
    )
