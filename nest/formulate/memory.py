"""Memory of layers in each recompute mode: saved and transient bytes, buffers, overheads (PROBLEM.md section 2)."""

from collections.abc import Collection, Sequence
from functools import partial

import numpy
from attrs import evolve, frozen
from numpy.typing import NDArray

from nest.formulate.operator_costs import Direction, PricedLayer, PricedOperator, Timing, shares
from nest.formulate.pricing import Pricing
from nest.formulate.recompute import Host, SavedTensors, external_inputs, recompute_modes, tensor_bytes
from nest.formulate.shard import capacity_flags
from nest.graph import Block, Operator
from nest.instance import Array, Overheads, RecomputeMode
from nest.spec.problem import OFFLOAD, RECOMPUTE_MODES

IN_PLACE = "all_reduce"
"""The kind of call that leaves its result where its operand was."""


@frozen
class WorkingSet:
    """Transient bytes while one operator runs.

    Attributes:
        bytes: all of them.
        buffers: those that communication fills and empties.
    """

    bytes: float
    buffers: float


def working_sets(rows: Sequence[PricedOperator]) -> dict[str, WorkingSet]:
    """By name, the working set of each operator of a layer.

    An operator that computes has what its cost model says; beside it what collectives made for it and nobody saves, and
    which is therefore made again in the backward pass (what `sp` gathers in front of a split operator, the keys and
    values that `cp` gathers: arXiv 2205.05198, section 4.2.2), and the buffers of the calls that run under it (a ring's
    next share of keys and values, and backward their gradients). A collective has its operands and its results, at
    least what its calls handle in one direction; an all-reduce works in place.
    """
    again = recomputed_bytes([row.operator for row in rows])
    buffers = {row.operator.name: collective_bytes(row.operator) for row in rows}
    beside: dict[str, float] = {}
    for row in rows:
        if row.operator.collective is not None and row.operator.collective.under:
            name = row.operator.collective.under
            beside[name] = beside.get(name, 0.0) + buffers[row.operator.name]
    sets = {}
    for row in rows:
        operator, own = row.operator, buffers[row.operator.name]
        if operator.collective is None:
            own = sum(again.get(tensor.name, 0.0) for tensor in operator.inputs) + beside.get(operator.name, 0.0)
        sets[operator.name] = WorkingSet(row.cost.transient + own, own)
    return sets


def collective_bytes(operator: Operator) -> float:
    """Bytes that the calls of an operator work on, in the direction in which that is more; 0 without any."""
    collective = operator.collective
    if collective is None:
        return 0.0
    calls = (*collective.forward, *collective.backward)
    whole = [operator.bytes_read, operator.bytes_written]
    tensors = max(whole) if all(call.kind == IN_PLACE for call in calls) else sum(whole)
    if operator.outputs:
        return tensors
    # Without tensors of its own it passes on what it reads: what arrives lies beside it.
    handled = (sum(call.bytes for call in each) for each in (collective.forward, collective.backward))
    return max(handled, default=0.0)


def recomputed_bytes(operators: Sequence[Operator]) -> dict[str, float]:
    """Bytes of each tensor that a collective makes once more in the backward pass, from what it saves itself."""
    saved = {name for operator in operators for name in operator.saves}
    return {
        tensor.name: tensor.bytes
        for operator in operators
        if operator.collective is not None and operator.saves
        for tensor in operator.outputs
        if tensor.name not in saved
    }


BOUNDARY_BUFFERS = 2
"""Tensors on their way at a stage's boundaries while a layer is at work: what arrives for the next micro-batch, and
what leaves of the last one (Megatron-LM's 1F1B receives into a fresh buffer while it still holds what it sends)."""

GATHERED_LAYERS = 2
"""Layers whose weights ZeRO 3 holds whole at once: the one at work and the one that is prefetched (PyTorch FSDP's
`forward_prefetch` and `BACKWARD_PRE`, arXiv 2304.11277, section 3.3.2)."""


@frozen
class ExtraMemory:
    """What a candidate's layers need beside what their operators keep and work on.

    Attributes:
        fragmentation: share of the memory held for further micro-batches in flight in which no tensor lies.
        framework: bytes of the driver and of libraries.
        buffers: bytes that communication between blocks fills and empties.
        gathered: bytes of weights and gradients that a stage with ZeRO 3 holds whole.
        data: names of the tensors that come with the data.
    """

    fragmentation: float
    framework: float
    buffers: float
    gathered: float
    data: frozenset[str] = frozenset()


def extra_memory(block: Block, layers: Sequence[PricedLayer], pricing: Pricing) -> ExtraMemory:
    """What the layers of `block`, one of each class, need besides.

    PROBLEM.md section 4 knows no bytes that depend on the number of stages or of replicas. So where the cluster has
    room for several blocks, every stage has buffers at its boundaries and is in the groups of ranks that several
    stages and several replicas make, whatever the plan decides: never too little, and the same for a plan that is
    searched and one that is given. What a stage with ZeRO 3 gathers is told apart. What the training says of overheads
    stands in place of the device's.
    """
    several, many = capacity_flags(block, pricing.cluster)
    said = {key: getattr(pricing.training, key) for key in ("context", "communicator", "fragmentation")}
    overheads = evolve(
        pricing.device.memory_overheads, **{key: value for key, value in said.items() if value is not None}
    )
    crossing = max((item.tensor.bytes for item in block.graph.layer_tensors), default=0.0)
    buffers = BOUNDARY_BUFFERS * crossing if several else 0.0
    formats = pricing.precision
    whole = (
        GATHERED_LAYERS * formats.weights * sum(row.operator.parameter_count for row in layer.rows)
        + formats.gradients * sum(row.operator.trained_count for row in layer.rows)
        for layer in layers
    )
    gathered = max(whole, default=0.0) if several else 0.0
    groups = len(_axes(block)) + several + many
    framework = overheads.context + groups * overheads.communicator
    data = external_inputs([row.operator for layer in layers for row in layer.rows])
    return ExtraMemory(overheads.fragmentation, framework, buffers, gathered, data)


def _axes(block: Block) -> set[str]:
    """The axes of `block` over whose ranks its operators communicate."""
    return {axis for axis in block.called if block.degree(axis) > 1}


WHOLE = "full"
"""The mode that runs whole layers again, and keeps what they read."""

STAGE = "stage"
"""The mode that runs whole stages again, and keeps what enters them."""

NO_WORK = WorkingSet(0.0, 0.0)

BUFFERS = 2
"""Layers whose activations may be on their way while one is at work: one to the host, one from it."""


@frozen
class PartCosts:
    """What a part of a layer takes and saves in a recompute mode, as `RecomputeMode` has it of a layer.

    Attributes:
        extra: seconds of recomputation.
        first: bytes saved for one micro-batch in flight.
        more: bytes saved for each further one.
        peak: transient bytes.
        buffers: bytes of them that communication fills and empties.
        busy: seconds for which what is recomputed occupies a device's port at each level, shape `(levels,)`.
    """

    extra: float
    first: float
    more: float
    peak: float
    buffers: float
    busy: Array

    @property
    def columns(self) -> tuple[float, ...]:
        """All but `busy`."""
        return self.extra, self.first, self.more, self.peak, self.buffers


LayerCosts = dict[str, list[PartCosts]]
"""For each mode, what the parts of a layer take and save."""


def modes(
    layers: Sequence[PricedLayer],
    repeated: Sequence[bool],
    index: NDArray[numpy.int_],
    pricing: Pricing,
    by_operator: bool,
    extra: ExtraMemory,
) -> tuple[RecomputeMode, ...]:
    """Every recompute mode: time, and memory of the layers that a stage may have.

    Args:
        layers: one of each class.
        repeated: for each, whether it is a transformer block.
        index: for each planned layer, its place among the parts of `layers`.
        pricing: says what is recomputed selectively, and where activations may be kept in the mode `offload`.
        by_operator: whether cuts may fall inside layers. What a block recomputed in full then reads of the stage in
            front is kept too; it counts as inputs of the stage, whether it lies inside a block or not.
        extra: what the layers need beside what their operators save and work on.
    """
    entering = max((layer.passing for layer in layers), default=0.0)
    data = extra.data
    key = ("costs", entering, data)
    costs = [
        dict(layer.once(key, partial(_layer_costs, layer, again, pricing, data, entering)))
        for layer, again in zip(layers, repeated, strict=True)
    ]
    names: tuple[str, ...] = RECOMPUTE_MODES
    if pricing.host is not None and pricing.host.holds_activations:
        names = (*names, OFFLOAD)
        _add_offloaded(costs, layers, repeated, pricing.timing, pricing.host)
    stashing = {STAGE, WHOLE} if by_operator else {STAGE}
    # Of all modes at once: a row for each column of their costs, over the planned layers.
    rows = [[row.columns for each in costs for row in each[name]] for name in names]
    columns = numpy.array(rows).transpose(2, 0, 1)
    columns[2] /= 1 - extra.fragmentation
    # What a stage needs once is in each `peak`: the stage takes the largest.
    columns[3] += extra.buffers
    columns[3] += extra.framework
    columns[4] += extra.buffers
    every = columns.transpose(1, 0, 2).take(index, axis=2)
    busy = [numpy.array([row.busy for each in costs for row in each[name]]) for name in names]
    return tuple(
        _mode(name, spread, its.take(index, axis=0).T if its.any() else None, name in stashing, extra)
        for name, spread, its in zip(names, every, busy, strict=True)
    )


def _add_offloaded(
    costs: Sequence[LayerCosts], layers: Sequence[PricedLayer], repeated: Sequence[bool], timing: Timing, host: Host
) -> None:
    """Add the mode in which transformer blocks keep on the host what they save.

    On the device is what the layer at work saves, and as much as the largest layer of the model saves for each of
    those on their way. A stage takes the largest of its layers, of which any may be at work beside any other's
    activations.
    """
    saved = [
        sum(part.first for part in each["none"]) if again else 0.0 for each, again in zip(costs, repeated, strict=True)
    ]
    moving = BUFFERS * max(saved, default=0.0)
    for each, layer, again, size in zip(costs, layers, repeated, saved, strict=True):
        times = (sum(layer.seconds(direction, timing)) for direction in (Direction.FORWARD, Direction.BACKWARD))
        waiting = shares(host.exposed_seconds(size, *times), [part.first for part in each["none"]])
        each[OFFLOAD] = [
            evolve(
                part,
                extra=extra,
                first=0.0 if again else part.first,
                more=0.0 if again else part.more,
                peak=part.peak + size + moving,
            )
            for part, extra in zip(each["none"], waiting, strict=True)
        ]


def _mode(name: str, columns: Array, busy: Array | None, stash: bool, besides: ExtraMemory) -> RecomputeMode:
    """A mode over the planned layers."""
    extra, first, more, peak, buffers = columns
    overheads = Overheads(besides.fragmentation, besides.framework, buffers)
    return RecomputeMode(name, extra, first, more, peak, stash, overheads, busy)


@frozen
class SavedBytes:
    """What the parts of a layer hold in a recompute mode, and what is recomputed; the network decides none of it.

    Attributes:
        again: names of the operators that run again; None: all do.
        first: of each part, as `PartCosts` has it.
        more: of each part.
        peak: of each part.
        buffers: of each part.
    """

    again: frozenset[str] | None
    first: Sequence[float]
    more: Sequence[float]
    peak: Sequence[float]
    buffers: Sequence[float]


def _layer_costs(
    layer: PricedLayer, repeated: bool, pricing: Pricing, data: frozenset[str], entering: float
) -> LayerCosts:
    """For each mode what the parts of a layer, perhaps a `repeated` transformer block, take and save.

    `data` are names of the tensors that come with the data, and at most `entering` bytes enter a stage which begins
    inside a layer.
    """
    selective = pricing.training.selected
    every = layer.once_untimed(("held", entering, data), partial(_held, layer, repeated, selective, data, entering))
    costs: LayerCosts = {}
    for mode, held in every.items():
        extra = layer.seconds(Direction.FORWARD, pricing.timing, held.again)
        busy = layer.ports(Direction.FORWARD, len(pricing.cluster.levels), held.again)
        rows = zip(extra, held.first, held.more, held.peak, held.buffers, busy, strict=True)
        costs[mode] = [PartCosts(*row) for row in rows]
    return costs


def _held(
    layer: PricedLayer, repeated: bool, selective: Sequence[str], data: Collection[str], entering: float
) -> dict[str, SavedBytes]:
    """By mode, what the parts of a layer hold.

    Transient are the largest working set of an operator and, when operators are recomputed, all they save.
    """
    operators = [row.kept for row in layer.rows]
    sizes = tensor_bytes(operators)
    working = working_sets(layer.rows)
    largest = [
        max((working[row.operator.name] for row in part), key=lambda each: each.bytes, default=NO_WORK)
        for part in layer.parts
    ]
    every: dict[str, SavedBytes] = {}
    for mode, saved in recompute_modes(operators, selective, repeated, data).items():
        names = frozenset(operator.name for operator in saved.again)
        transient = saved.restored_bytes(sizes)
        if mode != STAGE:
            transient += sum(row.cost.saved for row in layer.rows if row.operator.name in names)
        # One micro-batch's inputs of a stage that begins inside a layer, whichever of its layers is at work; the
        # others' are stashed inputs.
        transient += entering if mode in {WHOLE, STAGE} else 0.0
        first, more = (_saved(layer, saved, sizes, one) for one in (True, False))
        peaks = [transient + each.bytes for each in largest]
        again = None if len(names) == len(operators) else names
        every[mode] = SavedBytes(again, first, more, peaks, [each.buffers for each in largest])
    return every


def _saved(layer: PricedLayer, saved: SavedTensors, sizes: dict[str, float], one: bool) -> list[float]:
    """Bytes that each part saves of `one` micro-batch in flight, or of each further one.

    A tensor that several parts save counts with the first. An operator that is recomputed needs what it reads, and
    where what it made is held for the micro-batch at work, what it saves too; what its cost model says it saves beside
    tensors is not there while it waits.
    """
    recomputed, held = frozenset(operator.name for operator in saved.again), saved.held is not None
    again = frozenset[str]() if one and held else recomputed
    waiting = set(saved.stored | (saved.held or frozenset()) if one else saved.stored)
    sizes_saved = []
    for part in layer.parts:
        here = waiting
        if len(layer.parts) > 1:
            read = {t.name for row in part if row.kept.name in recomputed for t in row.kept.inputs}
            saves = {name for row in part if held or row.kept.name not in recomputed for name in row.kept.saves}
            here = (read | saves) & waiting
            waiting -= here
        beside = sum(row.cost.saved for row in part if row.operator.name not in again)
        sizes_saved.append(sum(sizes[name] for name in sorted(here)) + beside)
    return sizes_saved
