"""What each stage costs with one candidate, as arrays over the stages of `Cuts` (PROBLEM.md section 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import product
from types import MappingProxyType

import numpy
from attrs import frozen

from nest.instance import Candidate, Cluster, Instance, ParameterGroup, Weights
from nest.solve.cpsat.cases import Case, Mode
from nest.solve.cpsat.collective_seconds import collective_seconds
from nest.solve.cpsat.cuts import Booleans, Floats, Integers
from nest.solve.cpsat.first_blocks import of_part, pair_of
from nest.solve.cpsat.placement import block_starts
from nest.solve.cpsat.ports import Ports

OverLayers = Callable[[Floats], Floats]
"""From a value of each layer to one of each stage."""


@frozen(eq=False)
class StageCosts:
    """One candidate with its groups of devices known.

    Attributes:
        modes: what the rows of the arrays are.
        time: seconds per micro-batch without transfers, as if there were no ports. Shape `(modes, stages)`.
        shared: those of them that ZeRO adds, under which no message hides. Shape `(modes, stages)`.
        gathered: of these what is gathered in forward passes; as much is in backward passes. Shape `(modes, stages)`.
        forward: those of forward passes. Shape `(modes, stages)`.
        weight_gradients: those that find the gradients of weights. Shape `(stages,)`.
        sync: seconds per batch, as if there were no ports. Shape `(modes, stages)`.
        ports: what stages keep ports occupied with; None: the candidate does not say.
        one: bytes with one micro-batch in flight, the reserve included. Shape `(modes, stages)`.
        more: bytes of each further one. Shape `(modes, stages)`.
        bytes: what crosses each cut. Shape `(cuts,)`.
    """

    modes: tuple[Mode, ...]
    time: Floats
    shared: Floats
    gathered: Floats
    forward: Floats
    weight_gradients: Floats
    sync: Floats
    ports: Ports | None
    one: Floats
    more: Floats
    bytes: Floats

    @cached_property
    def busiest(self) -> Floats:
        """Seconds for which the busiest port is occupied, messages aside; 0 without ports. Shape `(modes, stages)`."""
        return numpy.broadcast_to(0.0, self.time.shape) if self.ports is None else self.ports.busy.max(axis=1)

    @cached_property
    def scattered(self) -> Floats:
        """Seconds of what ZeRO scatters in backward passes. Shape `(modes, stages)`."""
        return self.shared - 2 * self.gathered

    @cached_property
    def inputs(self) -> Floats:
        """Seconds of gradients of inputs, without what is scattered. Shape `(modes, stages)`."""
        return self.time - self.forward - self.weight_gradients - self.scattered

    def weighed(self, weights: Weights, row: int | None = None) -> Floats:
        """What a stage adds to the sum in the step time (`u`), messages and ports aside, in all modes or in one."""
        time, forward = (each if row is None else each[row] for each in (self.time, self.forward))
        if weights.uniform:
            return weights.forward * time
        weighed: Floats = weights.of_parts(forward, time - forward - self.weight_gradients, self.weight_gradients)
        return weighed

    def as_fast(self, one: int, other: int, case: Case) -> Booleans:
        """Where row `one` makes no stage slower than row `other`, wherever its block lies. Shape `(stages,)`."""
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
        """The row of each mode."""
        return {mode: row for row, mode in enumerate(self.modes)}

    def rows(self, modes: tuple[Mode, ...]) -> list[int]:
        """The rows of some modes."""
        return [self.row_of[mode] for mode in modes]


@frozen
class DataParallelGroup:
    """The devices that reduce the gradients of one parameter group.

    A shape says how many members a level-0 group has, how many level-0 groups a level-1 group, ..., the most of any.

    Attributes:
        shape: of all devices.
        members: all devices.
        shards: of the shard groups, each shape once; that of all devices alone without `zero_degree`.
        replicates: of the replicate groups, which hold the same shard, each shape once; none of single devices.
        shard_size: devices of a shard group.
    """

    shape: tuple[int, ...]
    members: int
    shards: tuple[tuple[int, ...], ...]
    replicates: tuple[tuple[int, ...], ...]
    shard_size: int


def data_parallel_groups(instance: Instance, case: Case, candidate: int) -> tuple[DataParallelGroup, ...]:
    """For each parameter group of a candidate, the devices that hold it at offset 0 (PROBLEM.md section 4)."""
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
    """The different shapes of the sets of devices that are rows."""
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
    """What does not depend on the replicas; arrays of shape `(stages,)`.

    Attributes:
        candidate: of the stages.
        compute: seconds of forward and backward.
        forward: seconds of forward.
        weight_gradients: seconds of backward that find the gradients of weights.
        busy: seconds for which the layers' collectives occupy the port at each level, of shape `(levels, stages)`; no
            levels where the candidate does not say.
        state: by parameter group, its sums.
        recompute: by mode, `extra` seconds, bytes of `one` micro-batch in flight and of each one `more`, whether it
            `stashes` what enters the stage, and what it adds to `busy`.
        bytes: what crosses each cut.
        pairs: by two modes (`pair_of`), `FirstBlocks.tables`.
    """

    candidate: Candidate
    compute: Floats
    forward: Floats
    weight_gradients: Floats
    busy: Floats
    state: tuple[dict[str, Floats], ...]
    recompute: dict[str, dict[str, Floats]]
    bytes: Floats
    pairs: Mapping[str, dict[str, Floats]]

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
        """The costs of a candidate in stages.

        Args:
            candidate: the candidate.
            sums: from values of layers to what those of each stage add up to.
            largest: from values of layers to the largest of each stage.
            entering: bytes that enter each stage.
            bytes: what crosses each cut.
            names: of the parts of stages that may be recomputed.
            pairs: what the attribute of that name says of them.
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
    """What a parameter group says of its layers, by name."""
    rows = {name: getattr(group, name) for name in ("weights", "gradients", "optimizer", "update")}
    return rows if group.pieces is None else rows | {"pieces": group.pieces}


def sharding(
    instance: Instance, parts: Parts, groups: tuple[DataParallelGroup, ...], copies: int
) -> dict[int, Sharded]:
    """What each ZeRO stage that the space knows costs.

    Args:
        instance: the problem.
        parts: what stages are made of.
        groups: the devices of each parameter group.
        copies: how many times a device holds its stages' parameters.
    """
    return {zero: _sharded(instance, parts, groups, zero, copies) for zero in dict.fromkeys(instance.space.zero)}


def priced(
    instance: Instance,
    parts: Parts,
    sharded: Mapping[int, Sharded],
    chosen: Mapping[Mode, Mapping[str, Floats]] | None = None,
) -> StageCosts:
    """Stages with every mode that the space knows.

    Args:
        instance: the problem.
        parts: what stages are made of.
        sharded: what each ZeRO stage costs.
        chosen: of each mode what `Parts.recompute` says; left out, all of that.
    """
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
    """Exposed seconds of communication beside `work` seconds of compute, `share` of it at least."""
    least: Floats = share * seconds
    return numpy.maximum(least, seconds - work) if instance.space.hiding else least


@frozen(eq=False)
class Sharded:
    """What a ZeRO stage costs, with all communication exposed.

    Attributes:
        often: seconds of communication per micro-batch, then those for which it occupies the port at each level, if
            the candidate has ports. Shape `(1, stages)` or `(1 + levels, stages)`.
        gathering: the share of it that is in forward passes, in which ZeRO 3 gathers weights. Shape `(stages,)`.
        once: the same once per batch, the first row with the waiting for other ranks.
        update: seconds of the optimizer step. Shape `(stages,)`.
        held: bytes. Shape `(stages,)`.
    """

    often: Floats
    gathering: Floats
    once: Floats
    update: Floats
    held: Floats


def _ports(instance: Instance, parts: Parts, each: Sequence[tuple[Mapping[str, Floats], Sharded]]) -> Ports:
    """The ports of stages, by recompute mode and ZeRO stage."""
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
    """What ZeRO stage `stage` costs (the table of PROBLEM.md section 4)."""
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
    """Bytes of a parameter group's state that a device holds with a ZeRO stage, by which it keeps it."""
    parts = (("weights", 3), ("gradients", 2), ("optimizer", 1))
    held: Floats = sum(sums[name] / (shards if zero >= sharded else 1) for name, sharded in parts)  # type: ignore[assignment]
    return held


def in_pieces(
    instance: Instance, kind: str, of: str, sums: dict[str, Floats], group: DataParallelGroup, rows: int
) -> Floats:
    """Seconds of what a stage sends in every micro-batch, in as many equal calls as its layers have pieces."""
    calls = numpy.maximum(sums.get("pieces", numpy.ones(1)), 1.0)
    return calls * collective_seconds(instance, kind, sums[of] / calls, group.shards, group.shard_size, rows)


def least_pieces(
    instance: Instance, kind: str, of: str, sums: dict[str, Floats], group: DataParallelGroup
) -> Floats | None:
    """Seconds that what goes in pieces takes at least, layer by layer; None where it goes in one call.

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
