"""From a block of operators to a candidate in numbers (PROBLEM.md section 2)."""

from collections.abc import Callable, Iterable, Sequence

import numpy
from attrs import frozen

from nest.catalogue import Optimizer, Precision
from nest.errors import InputError
from nest.formulate.layer_kinds import LayerKinds
from nest.formulate.recompute import recompute_modes, tensor_bytes
from nest.graph import Block, Communication, Operator
from nest.hooks.protocols import CostModel, OperatorCost
from nest.instance import Array, Candidate, Cluster, CollectiveModel, ParameterGroup, RecomputeMode
from nest.spec import DeviceSpec, Training
from nest.spec.problem import RECOMPUTE_MODES

NOTHING = OperatorCost(0.0, 0.0)
"""What a communication operator computes."""


@frozen
class Pricing:
    """What prices operators.

    Attributes:
        cluster: devices and network.
        device: the accelerator.
        training: how the model is trained.
        precision: bytes per parameter.
        optimizer: state per parameter.
        costs: prices operators that compute.
        collectives: prices operators that communicate.
    """

    cluster: Cluster
    device: DeviceSpec
    training: Training
    precision: Precision
    optimizer: Optimizer
    costs: CostModel
    collectives: CollectiveModel


@frozen
class PricedOperator:
    """An operator and its times, seconds per micro-batch.

    Attributes:
        operator: the operator.
        cost: of its computation.
        forward: communication in the forward pass.
        backward: communication in the backward pass.
    """

    operator: Operator
    cost: OperatorCost
    forward: float
    backward: float


def candidate(name: str, block: Block, layers: LayerKinds, pricing: Pricing) -> Candidate:
    """`block`, one layer of each kind, as a candidate of the whole graph.

    Raises:
        InputError: a strategy lost a tensor that crosses layers, or the cost model refuses an operator.
    """
    kinds = [_priced(operators, block, pricing) for operators in block.graph.by_layer]
    index = numpy.array(layers.kinds)

    def over_layers(value: Callable[[Sequence[PricedOperator]], float]) -> Array:
        return numpy.array([value(kind) for kind in kinds], dtype=numpy.float64).take(index)

    overlap = pricing.training.overlap.tensor
    return Candidate(
        name=name,
        degrees=dict(block.degrees),
        width=block.width,
        samples=block.samples,
        forward=over_layers(lambda rows: _duration(((r.cost.forward, r.forward) for r in rows), overlap)),
        backward=over_layers(lambda rows: _duration(((r.cost.backward, r.backward) for r in rows), overlap)),
        state=tuple(_group(group, block, over_layers, pricing) for group in _groups(block)),
        recompute=_modes(block, kinds, index, pricing),
        tensor_bytes=_crossing_bytes(block, layers),
    )


def _priced(operators: Sequence[Operator], block: Block, pricing: Pricing) -> list[PricedOperator]:
    def seconds(calls: Sequence[Communication]) -> float:
        return sum(_call(call, block, pricing) for call in calls)

    rows = []
    for operator in operators:
        if operator.collective is None:
            cost = pricing.costs.price(operator, pricing.device, pricing.training)
            rows.append(PricedOperator(operator, cost, 0.0, 0.0))
        else:
            made = operator.collective
            rows.append(PricedOperator(operator, NOTHING, seconds(made.forward), seconds(made.backward)))
    return rows


def _call(call: Communication, block: Block, pricing: Pricing) -> float:
    """One collective; blocks are aligned, so that the first one's shape is that of all."""
    cluster = pricing.cluster
    shape = cluster.shape(block.ranks(call.axis))
    return pricing.collectives.time(call.kind, call.bytes, shape, cluster.levels)


def _duration(times: Iterable[tuple[float, float]], overlap: bool) -> float:
    """Seconds of computation and communication; with `overlap.tensor` the longer hides the other."""
    rows = list(times)
    computation, communication = sum(row[0] for row in rows), sum(row[1] for row in rows)
    return max(computation, communication) if overlap else computation + communication


def _groups(block: Block) -> list[str]:
    """Names of the parameter groups, in the order in which they occur."""
    return list(dict.fromkeys(p.group for operator in block.graph.operators for p in operator.parameters))


def _group(
    name: str,
    block: Block,
    over_layers: Callable[[Callable[[Sequence[PricedOperator]], float]], Array],
    pricing: Pricing,
) -> ParameterGroup:
    def count(row: PricedOperator) -> int:
        return sum(p.count for p in row.operator.parameters if p.group == name)

    def update(row: PricedOperator) -> float:
        """The group's share of an operator's optimizer step."""
        return row.cost.update * count(row) / max(row.operator.parameter_count, 1)

    parameters = over_layers(lambda rows: float(sum(count(row) for row in rows)))
    return ParameterGroup(
        name=name,
        ranks=block.replica_ranks(name),
        weights=parameters * pricing.precision.weights,
        gradients=parameters * pricing.precision.gradients,
        optimizer=parameters * pricing.optimizer.state_bytes(pricing.precision),
        update=over_layers(lambda rows: sum(update(row) for row in rows)),
    )


def _modes(
    block: Block,
    kinds: Sequence[Sequence[PricedOperator]],
    index: "numpy.typing.NDArray[numpy.int_]",
    pricing: Pricing,
) -> tuple[RecomputeMode, ...]:
    """Every recompute mode; without blocks named in the graph every layer is taken to be repeated."""
    repeated = frozenset(block.graph.blocks or block.graph.layers)
    rows = [
        _memory(priced, layer in repeated, pricing) for layer, priced in zip(block.graph.layers, kinds, strict=True)
    ]
    modes = []
    for mode in RECOMPUTE_MODES:
        extra, stored, peak = (numpy.array([row[mode][n] for row in rows])[index] for n in range(3))
        modes.append(RecomputeMode(mode, extra, first=stored, more=stored, peak=peak))
    return tuple(modes)


def _memory(rows: Sequence[PricedOperator], repeated: bool, pricing: Pricing) -> dict[str, tuple[float, float, float]]:
    """For each mode: seconds run again, bytes per micro-batch in flight, and transient bytes of one layer.

    Transient are the largest working set of an operator and, when operators run again, all they save.
    """
    operators = [row.operator for row in rows]
    sizes = tensor_bytes(operators)
    working = max((row.cost.transient for row in rows), default=0.0)
    found = {}
    for mode, kept in recompute_modes(operators, pricing.training.selective, repeated).items():
        names = {operator.name for operator in kept.again}
        again = [row for row in rows if row.operator.name in names]
        extra = _duration(((r.cost.forward, r.forward) for r in again), pricing.training.overlap.tensor)
        stored = kept.stored_bytes(sizes) + sum(r.cost.saved for r in rows if r.operator.name not in names)
        restored = kept.restored_bytes(sizes) + sum(r.cost.saved for r in again)
        found[mode] = (extra, stored, restored + working)
    return found


def _crossing_bytes(block: Block, layers: LayerKinds) -> Array:
    sizes = {tensor.name: tensor.bytes for operator in block.graph.operators for tensor in operator.outputs}
    lost = next((name for crossing in layers.crossing for name in crossing.names if name not in sizes), None)
    if lost is not None:
        told = ", ".join(name for name, degree in block.degrees if degree > 1) or "none"
        raise InputError(
            f"tensor {lost!r} leaves its layer, but no operator makes it after the strategies were applied "
            f"({told}); a strategy must keep the names of tensors that other layers read."
        )
    return numpy.array([float(sum(sizes[name] for name in crossing.names)) for crossing in layers.crossing])
