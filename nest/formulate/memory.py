"""Memory of layers by recompute mode: saved and transient bytes, buffers, overheads (PROBLEM.md section 2)."""

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

IN_PLACE = "all_reduce"  # Kind of collective that works in place.


@frozen
class WorkingSet:
    """Transient bytes of one running operator."""

    bytes: float  # Total.
    buffers: float  # Part used by communication.


def working_sets(rows: Sequence[PricedOperator]) -> dict[str, WorkingSet]:
    """Working set of each operator of a layer, by name.

    A computing operator has the bytes of its cost model; tensors that collectives made for it, nobody saves and
    backward makes again (the gathers of `sp` before a split operator, the keys and values of `cp`: arXiv 2205.05198,
    section 4.2.2); and the buffers of calls that run under it (a ring's next share of keys and values, and their
    gradients). A collective has its operands and results, at least the bytes of its calls in one direction; an
    all-reduce works in place.
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
    """Bytes of an operator's calls, in the direction with more; 0 without calls."""
    collective = operator.collective
    if collective is None:
        return 0.0
    calls = (*collective.forward, *collective.backward)
    whole = [operator.bytes_read, operator.bytes_written]
    tensors = max(whole) if all(call.kind == IN_PLACE for call in calls) else sum(whole)
    if operator.outputs:
        return tensors
    # Without its own tensors it passes its inputs on, beside received ones.
    handled = (sum(call.bytes for call in each) for each in (collective.forward, collective.backward))
    return max(handled, default=0.0)


def recomputed_bytes(operators: Sequence[Operator]) -> dict[str, float]:
    """Bytes of each tensor that a collective makes again in the backward pass, from what it saves."""
    saved = {name for operator in operators for name in operator.saves}
    return {
        tensor.name: tensor.bytes
        for operator in operators
        if operator.collective is not None and operator.saves
        for tensor in operator.outputs
        if tensor.name not in saved
    }


BOUNDARY_BUFFERS = 2
"""Tensors in transit at a stage's boundaries while a layer runs: one arriving for the next micro-batch and one leaving
from the last (Megatron-LM's 1F1B receives into a fresh buffer while it still holds what it sends)."""

GATHERED_LAYERS = 2
"""Layers whose weights ZeRO 3 holds whole at once: the running one and the prefetched one (PyTorch FSDP's
`forward_prefetch` and `BACKWARD_PRE`, arXiv 2304.11277, section 3.3.2)."""


@frozen
class ExtraMemory:
    """Memory of a candidate's layers besides saved and transient tensors."""

    fragmentation: float  # Unused share of the memory for further micro-batches in flight.
    framework: float  # Bytes of driver and libraries.
    buffers: float  # Bytes of communication between blocks.
    gathered: float  # Bytes of weights and gradients that a stage with ZeRO 3 holds whole.
    data: frozenset[str] = frozenset()  # Names of the tensors that come with the data.


def extra_memory(block: Block, layers: Sequence[PricedLayer], pricing: Pricing) -> ExtraMemory:
    """Extra memory of the layers of `block`, one of each class.

    PROBLEM.md section 4 has no bytes that depend on stages or replicas. So if the cluster has room for several blocks,
    every stage gets boundary buffers and the rank groups of several stages and replicas, whatever the plan: never too
    little, and equal for searched and given plans. Gathers of ZeRO 3 are separate. Overheads in the training replace
    the device's.
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
        GATHERED_LAYERS * sum(row.operator.weight_bytes(formats.weights) for row in layer.rows)
        + formats.gradients * sum(row.operator.trained_count for row in layer.rows)
        for layer in layers
    )
    gathered = max(whole, default=0.0) if several else 0.0
    groups = sum(block.degree(axis) > 1 for axis in block.called) + several + many
    framework = overheads.context + groups * overheads.communicator
    data = external_inputs([row.operator for layer in layers for row in layer.rows])
    return ExtraMemory(overheads.fragmentation, framework, buffers, gathered, data)


WHOLE = "full"  # Mode that reruns whole layers, and keeps their inputs.
STAGE = "stage"  # Mode that reruns whole stages, and keeps their inputs.

NO_WORK = WorkingSet(0.0, 0.0)

BUFFERS = 2  # Layers whose activations may be in transit while one runs: one to the host, one from it.


@frozen
class PartCosts:
    """Costs of a part of a layer in a recompute mode, like `RecomputeMode` for a layer."""

    extra: float  # Seconds of recomputation.
    first: float  # Bytes saved for one micro-batch in flight.
    more: float  # Bytes saved for each further one.
    peak: float  # Transient bytes.
    buffers: float  # Part of them used by communication.
    busy: Array  # Seconds that recomputation occupies a device's port at each level, shape `(levels,)`.

    @property
    def columns(self) -> tuple[float, ...]:
        """All but `busy`."""
        return self.extra, self.first, self.more, self.peak, self.buffers


LayerCosts = dict[str, list[PartCosts]]  # Costs of a layer's parts by mode.


def modes(
    layers: Sequence[PricedLayer],
    repeated: Sequence[bool],
    index: NDArray[numpy.int_],
    pricing: Pricing,
    by_operator: bool,
    extra: ExtraMemory,
) -> tuple[RecomputeMode, ...]:
    """Every recompute mode: time, and memory of the layers of a stage.

    Args:
        layers: one of each class.
        repeated: for each, whether it is a transformer block.
        index: for each planned layer, its place among the parts of `layers`.
        pricing: knows selective recomputation and the host for `offload`.
        by_operator: cuts may fall inside layers. The inputs of a fully recomputed block from the stage before are then
            kept too; they count as stage inputs, inside a block or not.
        extra: memory besides saved and transient tensors.
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
    """Add the mode in which transformer blocks keep saved tensors on the host.

    The device holds what the running layer saves, and as much as the model's largest layer saves for each layer in
    transit. A stage takes the largest of its layers, as any may run next to any other's activations.
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
    extra, first, more, peak, buffers = columns
    overheads = Overheads(besides.fragmentation, besides.framework, buffers)
    return RecomputeMode(name, extra, first, more, peak, stash, overheads, busy)


@frozen
class SavedBytes:
    """Memory of a layer's parts in a recompute mode, and what is recomputed; independent of the network."""

    again: frozenset[str] | None  # Names of the recomputed operators; None: all.
    first: Sequence[float]  # By part, see `PartCosts`.
    more: Sequence[float]  # By part.
    peak: Sequence[float]  # By part.
    buffers: Sequence[float]  # By part.


def _layer_costs(
    layer: PricedLayer, repeated: bool, pricing: Pricing, data: frozenset[str], entering: float
) -> LayerCosts:
    """Costs of the parts of a layer, perhaps a `repeated` transformer block, by mode.

    `data` are names of the tensors that come with the data; at most `entering` bytes enter a stage that begins inside a
    layer.
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
    """Memory of the parts of a layer by mode.

    Transient bytes are the largest working set of an operator and, with recomputation, all that its operators save.
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

    A tensor saved by several parts counts with the first. A recomputed operator needs its inputs and, if its results
    are held for the running micro-batch, what it saves; bytes that its cost model saves besides tensors are absent
    meanwhile.
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
