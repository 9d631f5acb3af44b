"""Memory of layers in each recompute mode: saved and transient bytes, buffers, overheads (PROBLEM.md section 2)."""

from collections.abc import Collection, Sequence
from functools import partial

import numpy
from attrs import evolve, frozen
from numpy.typing import NDArray

from nest.formulate.offload import Host
from nest.formulate.operator_costs import Direction, PricedLayer, PricedOperator, Timing, shares
from nest.formulate.recompute import Kept, from_elsewhere, recompute_modes, tensor_bytes
from nest.graph import Block, Operator
from nest.instance import Array, Cluster, Overheads, RecomputeMode
from nest.spec import DeviceSpec, Training
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
    again = _made_again([row.operator for row in rows])
    buffers = {row.operator.name: collective_bytes(row.operator) for row in rows}
    beside: dict[str, float] = {}
    for row in rows:
        if row.operator.collective is not None and row.operator.collective.under:
            name = row.operator.collective.under
            beside[name] = beside.get(name, 0.0) + buffers[row.operator.name]
    found = {}
    for row in rows:
        operator, own = row.operator, buffers[row.operator.name]
        if operator.collective is None:
            own = sum(again.get(tensor.name, 0.0) for tensor in operator.inputs) + beside.get(operator.name, 0.0)
        found[operator.name] = WorkingSet(row.cost.transient + own, own)
    return found


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


def _made_again(operators: Sequence[Operator]) -> dict[str, float]:
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
class Beside:
    """What a candidate's layers need beside what their operators keep and work on.

    Attributes:
        fragmentation: share of the memory held for further micro-batches in flight in which no tensor lies.
        framework: bytes of the driver and of libraries.
        buffers: bytes that communication between blocks fills and empties.
        gathered: bytes of weights and gradients that a stage with ZeRO 3 holds whole.
    """

    fragmentation: float = 0.0
    framework: float = 0.0
    buffers: float = 0.0
    gathered: float = 0.0


def beside(
    block: Block,
    layers: tuple[PricedLayer, ...],
    weights: float,
    gradients: float,
    cluster: Cluster,
    device: DeviceSpec,
    training: Training,
) -> Beside:
    """What the layers of `block`, one of each class, need besides.

    PROBLEM.md section 4 knows no bytes that depend on the number of stages or of replicas. So where the cluster has
    room for several blocks, every stage has buffers at its boundaries and is in the groups of ranks that several
    stages and several replicas make, whatever the plan decides: never too little, and the same for a plan that is
    searched and one that is given. What a stage with ZeRO 3 gathers is told apart. `weights` and `gradients` are bytes
    per parameter; what `training` says of overheads stands in place of the device's.
    """
    blocks = cluster.size // block.width
    several = blocks > 1
    said = {key: getattr(training, key) for key in ("context", "communicator", "fragmentation")}
    overheads = evolve(device.memory_overheads, **{key: value for key, value in said.items() if value is not None})
    crossing = max((item.tensor.bytes for item in block.graph.layer_tensors), default=0.0)
    buffers = BOUNDARY_BUFFERS * crossing if several else 0.0
    largest = max((sum(row.operator.parameter_count for row in layer.rows) for layer in layers), default=0)
    gathered = largest * (GATHERED_LAYERS * weights + gradients) if several else 0.0
    # Fewer than four blocks are stages or replicas, but not both.
    groups = len(_axes(block)) + several + (blocks >= 4)
    framework = overheads.context + groups * overheads.communicator
    return Beside(overheads.fragmentation, framework, buffers, gathered)


def _axes(block: Block) -> set[str]:
    """The axes of `block` over whose ranks its operators communicate."""
    return {
        call.axis
        for operator in block.graph.operators
        if operator.collective is not None
        for call in (*operator.collective.forward, *operator.collective.backward)
        if block.degree(call.axis) > 1
    }


WHOLE = "full"
"""The mode that runs whole layers again, and keeps what they read."""

STAGE = "stage"
"""The mode that runs whole stages again, and keeps what enters them."""

NOTHING_BESIDES, NO_WORK = Beside(), WorkingSet(0.0, 0.0)

BUFFERS = 2
"""Layers whose activations may be on their way while one is at work: one to the host, one from it."""


@frozen
class Bill:
    """What a part of a layer costs and keeps.

    Attributes:
        extra: seconds run again.
        first: bytes kept for one micro-batch in flight.
        more: bytes kept for each further one.
        peak: transient bytes.
        buffers: bytes of them that communication fills and empties.
        busy: seconds for which what runs again occupies a device's port at each level, shape `(levels,)`.
    """

    extra: float
    first: float
    more: float
    peak: float
    buffers: float
    busy: Array


Bills = dict[str, list[Bill]]
"""For each mode, what the parts of a layer cost and keep."""


def modes(
    layers: Sequence[PricedLayer],
    repeated: Sequence[bool],
    index: NDArray[numpy.int_],
    training: Training,
    timing: Timing,
    by_operator: bool,
    levels: int,
    host: Host | None = None,
    besides: Beside = NOTHING_BESIDES,
) -> tuple[RecomputeMode, ...]:
    """Every recompute mode.

    Args:
        layers: one of each kind.
        repeated: for each, whether it is a transformer block.
        index: for each planned layer, its place among the parts of `layers`.
        training: says what is recomputed selectively.
        timing: how the times of operators become a layer's.
        by_operator: whether cuts may fall inside layers. What a block recomputed in full then reads of the stage in
            front is kept too; it counts as inputs of the stage, whether it lies inside a block or not.
        levels: of the network.
        host: where activations may be kept, in the mode `offload`.
        besides: what the layers need beside what their operators keep and work on.
    """
    data = from_elsewhere([row.operator for layer in layers for row in layer.rows])
    entering = max((layer.passing for layer in layers), default=0.0)
    key = ("bills", entering, frozenset(data))
    bills = [
        dict(layer.once(key, partial(_bills, layer, again, training, timing, data, entering, levels)))
        for layer, again in zip(layers, repeated, strict=True)
    ]
    names: tuple[str, ...] = RECOMPUTE_MODES
    if host is not None and host.holds_activations:
        names = (*names, OFFLOAD)
        _add_offloaded(bills, layers, repeated, timing, host)
    stashing = {STAGE, WHOLE} if by_operator else {STAGE}
    return tuple(_mode(name, bills, index, name in stashing, besides) for name in names)


def _add_offloaded(
    bills: Sequence[Bills], layers: Sequence[PricedLayer], repeated: Sequence[bool], timing: Timing, host: Host
) -> None:
    """Add the mode in which transformer blocks keep on the host what they save.

    On the device is what the layer at work saves, and as much as the largest layer of the model saves for each of
    those on their way. A stage takes the largest of its layers, of which any may be at work beside any other's
    activations.
    """
    saved = [
        sum(part.first for part in bill["none"]) if again else 0.0 for bill, again in zip(bills, repeated, strict=True)
    ]
    moving = BUFFERS * max(saved, default=0.0)
    for bill, layer, again, size in zip(bills, layers, repeated, saved, strict=True):
        times = (sum(layer.seconds(direction, timing)) for direction in (Direction.FORWARD, Direction.BACKWARD))
        waiting = shares(host.exposed_seconds(size, *times), [part.first for part in bill["none"]])
        bill[OFFLOAD] = [
            Bill(
                extra,
                first=0.0 if again else part.first,
                more=0.0 if again else part.more,
                peak=part.peak + size + moving,
                buffers=part.buffers,
                busy=part.busy,
            )
            for part, extra in zip(bill["none"], waiting, strict=True)
        ]


def _mode(name: str, bills: Sequence[Bills], index: NDArray[numpy.int_], stash: bool, besides: Beside) -> RecomputeMode:
    """A mode over the planned layers. What a stage needs once is in each `peak`: the stage takes the largest."""
    rows = [row for bill in bills for row in bill[name]]
    extra, first, more, peak, buffers = (
        numpy.array([getattr(row, column) for row in rows])[index]
        for column in ("extra", "first", "more", "peak", "buffers")
    )
    used = 1 - besides.fragmentation
    busy = numpy.array([row.busy for row in rows])[index].T
    return RecomputeMode(
        name,
        extra,
        first=first,
        more=more / used,
        peak=peak + besides.buffers + besides.framework,
        stash_inputs=stash,
        overheads=Overheads(besides.fragmentation, besides.framework, buffers + besides.buffers),
        busy=busy if busy.any() else None,
    )


def _bills(
    layer: PricedLayer,
    repeated: bool,
    training: Training,
    timing: Timing,
    data: Collection[str],
    entering: float,
    levels: int,
) -> Bills:
    """For each mode what the parts of a layer cost and keep.

    Transient are the largest working set of an operator and, when operators run again, all they save.

    Args:
        layer: the layer.
        repeated: whether it is a transformer block.
        training: says what is recomputed selectively.
        timing: how the times of operators become the layer's.
        data: names of the tensors that come with the data.
        entering: bytes that enter a stage which begins inside a layer, at most.
        levels: of the network.
    """
    operators = [row.kept for row in layer.rows]
    sizes = tensor_bytes(operators)
    working = working_sets(layer.rows)
    found: Bills = {}
    for mode, kept in recompute_modes(operators, training.selective, repeated, data).items():
        names = frozenset(operator.name for operator in kept.again)
        extra = layer.seconds(Direction.FORWARD, timing, names)
        more = _stored(layer, kept.stored, kept, sizes)
        first = _stored(layer, kept.stored | (kept.held or frozenset()), kept, sizes)
        transient = kept.restored_bytes(sizes)
        if mode != STAGE:
            transient += sum(row.cost.saved for row in layer.rows if row.operator.name in names)
        # One micro-batch's inputs of a stage that begins inside a layer, whichever of its layers is at work; the
        # others' are stashed inputs.
        transient += entering if mode in {WHOLE, STAGE} else 0.0
        largest = [
            max((working[row.operator.name] for row in part), key=lambda each: each.bytes, default=NO_WORK)
            for part in layer.parts
        ]
        peaks = [transient + each.bytes for each in largest]
        first = [each + own for each, own in zip(first, _saved_beside(layer, kept, one=True), strict=True)]
        more = [each + own for each, own in zip(more, _saved_beside(layer, kept, one=False), strict=True)]
        buffers = [each.buffers for each in largest]
        busy = layer.ports(Direction.FORWARD, levels, names)
        found[mode] = [Bill(*row) for row in zip(extra, first, more, peaks, buffers, busy, strict=True)]
    return found


def _saved_beside(layer: PricedLayer, kept: Kept, one: bool) -> list[float]:
    """Bytes that cost models say operators keep beside tensors: of `one` micro-batch, or of each further one.

    What runs again keeps none of them while it waits.
    """
    again = frozenset() if one and kept.held is not None else frozenset(operator.name for operator in kept.again)
    return [sum(row.cost.saved for row in part if row.operator.name not in again) for part in layer.parts]


def _stored(layer: PricedLayer, names: frozenset[str], kept: Kept, sizes: dict[str, float]) -> list[float]:
    """Bytes of the tensors `names` that each part keeps; a tensor that several keep counts with the first."""
    if len(layer.parts) == 1:
        return [sum(sizes[name] for name in sorted(names))]
    again = frozenset(operator.name for operator in kept.again)
    waiting = set(names)
    found = []
    for part in layer.parts:
        here = {name for row in part for name in _keeps(row, again, kept.held is not None)} & waiting
        waiting -= here
        found.append(sum(sizes[name] for name in sorted(here)))
    return found


def _keeps(row: PricedOperator, again: frozenset[str], held: bool) -> tuple[str, ...]:
    """Names of the tensors an operator needs kept: what it saves, or, when it runs again, what it reads.

    Where what was run again is `held`, it needs both.
    """
    operator = row.kept
    read = tuple(tensor.name for tensor in operator.inputs) if operator.name in again else ()
    return (*read, *operator.saves) if held or operator.name not in again else read
