"""Costs of stages with one candidate, as arrays over the stages of `Cuts` (PROBLEM.md section 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import product
from types import MappingProxyType

import numpy
from attrs import frozen

from nest.instance import Candidate, Cluster, Instance, ParameterGroup, Weights
from nest_cpsat.cases import Case, Mode
from nest_cpsat.collective_seconds import collective_seconds
from nest_cpsat.cuts import Booleans, Floats, Integers
from nest_cpsat.first_blocks import of_part, pair_of
from nest_cpsat.placement import block_starts
from nest_cpsat.ports import Ports

OverLayers = Callable[[Floats], Floats]  # Reduction from values of layers to values of stages.


@frozen(eq=False)
class StageCosts:
    """Costs of stages with one candidate and known device groups; arrays of shape `(modes, stages)` unless given."""

    modes: tuple[Mode, ...]  # Of the rows.
    time: Floats  # Seconds per micro-batch without transfers and ports.
    shared: Floats  # ZeRO's part of it, which hides no messages.
    gathered: Floats  # Gathering in forward passes; backward passes repeat it.
    forward: Floats  # Seconds of forward passes.
    weight_gradients: Floats  # Seconds of weight gradients. Shape `(stages,)`.
    sync: Floats  # Seconds per batch without ports.
    ports: Ports | None  # Occupation; None: no ports.
    one: Floats  # Bytes with one micro-batch in flight, with the reserve.
    more: Floats  # Bytes of each further micro-batch.
    bytes: Floats  # Across each cut. Shape `(cuts,)`.

    @cached_property
    def busiest(self) -> Floats:
        """Seconds that the busiest port is occupied, without messages. Shape `(modes, stages)`."""
        return numpy.broadcast_to(0.0, self.time.shape) if self.ports is None else self.ports.busy.max(axis=1)

    @cached_property
    def scattered(self) -> Floats:
        """Seconds of ZeRO's scattering in backward passes. Shape `(modes, stages)`."""
        return self.shared - 2 * self.gathered

    @cached_property
    def inputs(self) -> Floats:
        """Seconds of input gradients without scattering. Shape `(modes, stages)`."""
        return self.time - self.forward - self.weight_gradients - self.scattered

    def weighed(self, weights: Weights, row: int | None = None) -> Floats:
        """Part of the sum in the step time (`u`) without messages and ports, in all modes or one."""
        time, forward = (each if row is None else each[row] for each in (self.time, self.forward))
        if weights.uniform:
            return weights.forward * time
        weighed: Floats = weights.of_parts(forward, time - forward - self.weight_gradients, self.weight_gradients)
        return weighed

    def as_fast(self, one: int, other: int, case: Case) -> Booleans:
        """Mask of stages no slower in row `one` than in row `other`, for any placement. Shape `(stages,)`."""
        faster: Booleans = (self.time[one] <= self.time[other]) & (self.sync[one] <= self.sync[other])
        if case.apart:
            faster &= self.weighed(case.weights, one) <= self.weighed(case.weights, other)
            faster &= self.shared[one] <= self.shared[other]
            if self.ports is not None:
                # Whether a port is waited for longer, and what that weighs, is another question.
                return numpy.zeros(self.time.shape[1], dtype=bool)
        if case.replayed:
            if self.ports is not None:
                return numpy.zeros(self.time.shape[1], dtype=bool)
            faster &= (self.forward[one] <= self.forward[other]) & (self.scattered[one] <= self.scattered[other])
            faster &= self.inputs[one] <= self.inputs[other]
            if case.hiding:  # Messages that do not hide are part of forward passes, too.
                faster &= self.time[one] - self.shared[one] == self.time[other] - self.shared[other]
        if self.ports is not None:
            faster &= self.ports.as_free(self.time, self.sync, one, other, case.micro_batches)
        return faster

    @cached_property
    def row_of(self) -> dict[Mode, int]:
        """Row of each mode."""
        return {mode: row for row, mode in enumerate(self.modes)}

    def rows(self, modes: tuple[Mode, ...]) -> list[int]:
        """Rows of some modes."""
        return [self.row_of[mode] for mode in modes]


@frozen
class DataParallelGroup:
    """Devices that reduce the gradients of one parameter group.

    A shape has the members of a level-0 group, the level-0 groups of a level-1 group, ..., each the most of any.
    """

    shape: tuple[int, ...]  # Of all devices.
    members: int  # Number of devices.
    shards: tuple[tuple[int, ...], ...]  # Distinct shapes of shard groups; without `zero_degree`, all devices.
    # Distinct shapes of replicate groups (equal shards); empty for single devices.
    replicates: tuple[tuple[int, ...], ...]
    shard_size: int  # Devices of a shard group.


def data_parallel_groups(instance: Instance, case: Case, candidate: int) -> tuple[DataParallelGroup, ...]:
    """Devices of each parameter group of a candidate at offset 0 (PROBLEM.md section 4)."""
    used = instance.candidates[candidate]
    starts = block_starts(instance, case, numpy.array([0]), numpy.array([used.width]))[0]
    groups = []
    for group in used.state:
        members = numpy.unique(starts[:, None] + numpy.array(group.ranks, dtype=numpy.int64)[None, :])
        size = min(len(members), case.zero_degree or len(members))
        rows = members.reshape(-1, size)
        replicates = _shapes(instance.cluster, rows.T) if len(rows) > 1 else ()
        whole = _shape(instance.cluster, members)
        groups.append(DataParallelGroup(whole, len(members), _shapes(instance.cluster, rows), replicates, size))
    return tuple(groups)


def _shapes(cluster: Cluster, rows: Integers) -> tuple[tuple[int, ...], ...]:
    return tuple(dict.fromkeys(_shape(cluster, row) for row in rows))


def _shape(cluster: Cluster, members: Integers) -> tuple[int, ...]:
    shape, size, occupied = [], 1, members
    for capacity in cluster.capacities:
        parents, counts = numpy.unique(occupied * size // capacity, return_counts=True)
        shape.append(int(counts.max()))
        occupied, size = parents, capacity
    return tuple(shape)


@frozen(eq=False)
class Parts:
    """Costs independent of replicas; arrays of shape `(stages,)`."""

    candidate: Candidate
    compute: Floats  # Seconds of forward and backward passes.
    forward: Floats  # Seconds of forward passes.
    weight_gradients: Floats  # Seconds of weight gradients.
    # Seconds that layers' collectives occupy the port at each level. Shape `(levels, stages)`; no levels: no ports.
    busy: Floats
    state: tuple[dict[str, Floats], ...]  # Sums by parameter group.
    # By mode, `extra` seconds, bytes of `one` micro-batch in flight and of each one `more`, whether it `stashes` the
    # stage's inputs, and its part of `busy`.
    recompute: dict[str, dict[str, Floats]]
    bytes: Floats  # Across each cut.
    pairs: Mapping[str, dict[str, Floats]]  # `FirstBlocks.tables` by pair of modes (`pair_of`).

    @classmethod
    def of(
        cls,
        candidate: Candidate,
        sums: OverLayers,
        largest: OverLayers,
        entering: Floats,
        bytes: Floats,  # noqa: A002
        names: Sequence[str] = (),
        pairs: Mapping[str, dict[str, Floats]] = MappingProxyType({}),
    ) -> Parts:
        """Sum up the costs of a candidate by stage.

        Args:
            sums: sums values of layers by stage.
            largest: finds the largest value of each stage's layers.
            entering: bytes that enter each stage.
            names: of partial recomputation.
            pairs: see the attribute.
        """

        def rows(values: Floats | None) -> Floats:
            return numpy.array([sums(row) for row in ([] if values is None else values)])

        recompute = {
            mode.name: {
                "extra": sums(mode.extra),
                "one": sums(mode.first) + largest(mode.peak),
                "more": sums(mode.more) + (entering if mode.stash_inputs else 0.0),
                "stashes": numpy.full_like(entering, mode.stash_inputs),
                "busy": rows(mode.busy),
            }
            for mode in candidate.recompute
        }
        state = tuple({name: sums(row) for name, row in rows_of_state(group).items()} for group in candidate.state)
        return cls(
            candidate,
            sums(candidate.forward + candidate.backward),
            sums(candidate.forward),
            sums(candidate.finding_weight_gradients),
            rows(candidate.busy),
            state,
            recompute | {name: of_part(pairs[pair_of(name)], name) for name in names},
            bytes,
            pairs,
        )


def rows_of_state(group: ParameterGroup) -> dict[str, Floats]:
    """Numbers of a parameter group by layer."""
    rows = {name: getattr(group, name) for name in ("weights", "gradients", "optimizer", "update")}
    return rows if group.pieces is None else rows | {"pieces": group.pieces}


def sharding(
    instance: Instance, parts: Parts, groups: tuple[DataParallelGroup, ...], copies: int
) -> dict[int, Sharded]:
    """Costs of each ZeRO stage of the space; a device holds its stages' parameters `copies` times."""
    return {zero: _sharded(instance, parts, groups, zero, copies) for zero in dict.fromkeys(instance.space.zero)}


def priced(
    instance: Instance,
    parts: Parts,
    sharded: Mapping[int, Sharded],
    chosen: Mapping[Mode, Mapping[str, Floats]] | None = None,
) -> StageCosts:
    """Price stages with every mode of the space; `chosen` replaces `Parts.recompute`."""
    if chosen is None:
        chosen = {(name, zero): own for (name, own), zero in product(parts.recompute.items(), sharded)}
    times, often, gathered, syncs = [], [], [], []
    for (_, zero), mode in chosen.items():
        work, shared = parts.compute + mode["extra"], sharded[zero]
        often.append(_exposed(instance, shared.often[0], work, instance.space.often_exposed))
        times.append(work + often[-1])
        gathered.append(often[-1] * shared.gathering)
        most = parts.compute + mode.get("most", mode["extra"])
        syncs.append(_exposed(instance, shared.once[0], most, instance.space.exposed) + shared.update)
    each = [(mode, sharded[zero]) for (_, zero), mode in chosen.items()]
    reserve = instance.cluster.reserve
    return StageCosts(
        modes=tuple(chosen),
        time=numpy.array(times),
        shared=numpy.array(often),
        gathered=numpy.array(gathered),
        forward=parts.forward + numpy.array(gathered),
        weight_gradients=parts.weight_gradients,
        sync=numpy.array(syncs),
        ports=None if parts.candidate.busy is None else _ports(instance, parts, each),
        one=numpy.array([mode["one"] + shared.held + reserve for mode, shared in each]),
        more=numpy.array([mode["more"] for mode, _ in each]),
        bytes=parts.bytes,
    )


def _exposed(instance: Instance, seconds: Floats, work: Floats, share: float) -> Floats:
    """Exposed seconds of communication beside `work` seconds of compute, at least `share` of it."""
    least: Floats = share * seconds
    return numpy.maximum(least, seconds - work) if instance.space.hiding else least


@frozen(eq=False)
class Sharded:
    """Costs of a ZeRO stage with all communication exposed; arrays of shape `(stages,)`."""

    # Seconds of communication per micro-batch, then of port occupation at each level, if any. Shape `(1, stages)` or
    # `(1 + levels, stages)`.
    often: Floats
    gathering: Floats  # Share of it in forward passes, in which ZeRO 3 gathers weights.
    once: Floats  # Same once per batch; the first row includes waits for other ranks.
    update: Floats  # Seconds of the optimizer step.
    held: Floats  # Bytes.


def _ports(instance: Instance, parts: Parts, each: Sequence[tuple[Mapping[str, Floats], Sharded]]) -> Ports:
    """Ports of stages by recompute mode and ZeRO stage."""
    hides = instance.space.exposed < 1
    busy = [parts.busy + shared.often[1:] + (mode["busy"] if mode["busy"].size else 0.0) for mode, shared in each]
    return Ports(
        busy=numpy.array(busy),
        once=numpy.array([shared.once[0] + shared.update for _, shared in each]),
        used=numpy.array([(shared.once[1:] > 0) & hides for _, shared in each]),
    )


def _sharded(
    instance: Instance, parts: Parts, groups: tuple[DataParallelGroup, ...], stage: int, copies: int
) -> Sharded:
    """Costs of a ZeRO stage (the table of PROBLEM.md section 4)."""
    zero, rows = instance.space.effective_zero(stage), 1 + len(parts.busy)
    often, once = (numpy.zeros((rows, len(parts.compute))) for _ in range(2))
    update, held, gathered = (numpy.zeros_like(parts.compute) for _ in range(3))
    for sums, group in zip(parts.state, groups, strict=True):
        shards = group.shards, group.shard_size, rows
        scatter = collective_seconds(instance, "reduce_scatter", sums["gradients"], *shards)
        gather = collective_seconds(instance, "all_gather", sums["weights"], *shards)
        if zero and group.replicates:
            across, shard = group.members // group.shard_size, sums["gradients"] / group.shard_size
            once += collective_seconds(instance, "all_reduce", shard, group.replicates, across, rows)
        update += sums["update"] / (group.shard_size if zero else 1)
        if zero == 0:
            once += collective_seconds(instance, "all_reduce", sums["gradients"], (group.shape,), group.members, rows)
        elif zero == 1:
            once += scatter + gather
        elif zero == 2:
            often += in_pieces(instance, "reduce_scatter", "gradients", sums, group, rows)
            once += gather
        else:
            often += in_pieces(instance, "reduce_scatter", "gradients", sums, group, rows)
            gather = in_pieces(instance, "all_gather", "weights", sums, group, rows)
            often += 2 * gather
            gathered += gather[0]
        held += held_state(sums, group.shard_size, zero)
    once[0] *= instance.space.synchronisation * (instance.space.sharded_synchronisation if zero else 1.0)
    # What is gathered for the layers at work is there once, however many copies there are of the parameters.
    held = copies * held + (parts.candidate.gathered if zero == 3 else 0.0)
    gathering = numpy.divide(gathered, often[0], out=numpy.zeros_like(gathered), where=often[0] > 0)
    return Sharded(often, gathering, once, update, held)


def held_state(sums: dict[str, Floats], shards: int, zero: int) -> Floats:
    """Bytes of a parameter group's state on a device with a ZeRO stage."""
    parts = (("weights", 3), ("gradients", 2), ("optimizer", 1))
    held: Floats = sum(sums[name] / (shards if zero >= sharded else 1) for name, sharded in parts)  # type: ignore[assignment]
    return held


def in_pieces(
    instance: Instance, kind: str, of: str, sums: dict[str, Floats], group: DataParallelGroup, rows: int
) -> Floats:
    """Seconds of communication per micro-batch, in as many equal calls as the layers have pieces."""
    calls = numpy.maximum(sums.get("pieces", numpy.ones(1)), 1.0)
    return calls * collective_seconds(instance, kind, sums[of] / calls, group.shards, group.shard_size, rows)


def least_pieces(
    instance: Instance, kind: str, of: str, sums: dict[str, Floats], group: DataParallelGroup
) -> Floats | None:
    """Lower bound (s) by layer on communication in pieces; None: it is one call.

    No stage's pieces are smaller than the smallest of any layer. `sums` are those of single layers.
    """
    calls = numpy.where(sums[of] > 0, sums.get("pieces", numpy.zeros(1)), 0.0)
    if not calls.any() or ((calls == 0) & (sums[of] > 0)).any():
        return None
    least = float((sums[of][calls > 0] / calls[calls > 0]).min())
    price, levels = instance.collectives.time, instance.cluster.levels
    seconds: Floats = calls * max(
        float(price(kind, least, each, levels, members=group.shard_size)) for each in group.shards
    )
    return seconds
