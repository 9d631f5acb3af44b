"""From a block of operators to a candidate in numbers (PROBLEM.md section 2), and what all candidates were made of."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy
from attrs import evolve, field, frozen

from nest.catalogue import Optimizer, Precision, scale_up_levels
from nest.errors import InputError
from nest.formulate.layer_classes import LayerClasses
from nest.formulate.memory import extra_memory, modes
from nest.formulate.operator_costs import Calls, Direction, PricedLayer, PricedOperator, Timing, shares
from nest.formulate.partition import inseparable, owners, passing
from nest.formulate.recompute import Host, narrow_format, tensor_bytes, with_narrow_copies
from nest.graph import Block, Collective, Communication, Operator
from nest.hooks.protocols import CostModel, LayerTimes, OperatorCost
from nest.instance import Array, Candidate, Cluster, CollectiveModel, LayerGraph, ParameterGroup
from nest.spec import DeviceSpec, Training

NOTHING = OperatorCost(0.0, 0.0)
"""What a communication operator computes."""

PIECEWISE = "tensor"
"""The key of `training.overlap` whose collectives are cut into pieces that go through buffers shared inside a node."""


@frozen(slots=False)
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
        layer_times: puts the times of a layer's operators together.
        host: where state or activations are kept; None: all stays on the device.
    """

    cluster: Cluster
    device: DeviceSpec
    training: Training
    precision: Precision
    optimizer: Optimizer
    costs: CostModel
    collectives: CollectiveModel
    layer_times: LayerTimes
    host: Host | None = None
    compute_costs: dict[int, tuple[Operator, OperatorCost]] = field(factory=dict, init=False, repr=False, eq=False)
    _shapes: dict[tuple[tuple[int, ...], int], tuple[tuple[int, ...], ...]] = field(
        factory=dict, init=False, repr=False, eq=False
    )
    _layers: dict[tuple[Any, ...], tuple[tuple[Operator, ...], PricedLayer]] = field(
        factory=dict, init=False, repr=False, eq=False
    )

    def cost(self, operator: Operator) -> OperatorCost:
        """What the operator computes costs; the same object is priced once, as strategies leave most as they are."""
        if operator.collective is not None:
            return NOTHING
        if id(operator) not in self.compute_costs:
            self.compute_costs[id(operator)] = operator, self.costs.price(operator, self.device, self.training)
        return self.compute_costs[id(operator)][1]

    def shapes(self, axis: str, block: Block) -> tuple[tuple[int, ...], ...]:
        """The shapes of the groups of ranks along `axis`, each once; those of one block, as blocks are aligned."""
        key = block.ranks(axis), block.width
        if key not in self._shapes:
            self._shapes[key] = tuple(dict.fromkeys(self.cluster.shape(group) for group in block.groups(axis)))
        return self._shapes[key]

    @cached_property
    def calls(self) -> Calls:
        """What prices collective calls."""
        return Calls(self.cluster, self.collectives, self.training, scale_up_levels(self.cluster.levels))

    def call_seconds(self, call: Communication, block: Block) -> float:
        """Seconds of one call."""
        return self.calls.seconds(call, self.shapes(call.axis, block), len(block.ranks(call.axis)))

    def ports(self, calls: Sequence[Communication], block: Block) -> Array:
        """Seconds for which `calls` occupy a device's port at each level, shape `(levels,)`."""
        rows = (self.calls.ports(call, self.shapes(call.axis, block), len(block.ranks(call.axis))) for call in calls)
        return sum(rows, numpy.zeros(len(self.cluster.levels)))

    @property
    def timing(self) -> Timing:
        """How the times of operators become a layer's."""
        return Timing(self.layer_times, self.device.engines, self.device.calibration.host_launch)

    def exposed(self, made: Collective, block: Block) -> str:
        """The coefficient that says which share of overlapped calls is exposed; empty: none are overlapped.

        Where overlap of tensor parallelism reaches as far as the scale-up network only, every group of ranks must lie
        inside, and the calls must be gathers and scatters, which go piece by piece (NVIDIA/TransformerEngine, issues
        746 and 1071).
        """
        if not made.overlap or not getattr(self.training.overlap, made.overlap):
            return ""
        if made.overlap == "experts" and self.training.dispatch == "per-node":
            return "dispatch_exposed"
        share = f"{made.overlap}_exposed"
        if made.overlap != PIECEWISE or self.training.overlap_reach != "domain":
            return share
        every = (*made.forward, *made.backward)
        if any(call.kind == "all_reduce" for call in every):
            return ""
        shapes = (shape for call in every for shape in self.shapes(call.axis, block))
        return share if all(members == 1 for shape in shapes for members in shape[self.calls.inside :]) else ""

    def layer(
        self, originals: Sequence[Operator], operators: tuple[Operator, ...], repeated: bool, block: Block, fine: bool
    ) -> PricedLayer:
        """`_priced_layer`, once for the same operators whose collectives have ranks that lie alike."""
        axes = dict.fromkeys(
            call.axis
            for operator in operators
            if operator.collective is not None
            for call in (*operator.collective.forward, *operator.collective.backward)
        )
        key = (
            *(id(operator) for operator in operators),
            *((len(block.ranks(axis)), self.shapes(axis, block)) for axis in axes),
        )
        if key not in self._layers:
            self._layers[key] = operators, _priced_layer(originals, operators, repeated, block, self, fine)
        return self._layers[key][1]


Spread = Callable[[Callable[[PricedLayer], Sequence[float]]], Array]
"""From the numbers of the parts of a layer to an array over the planned layers."""


def candidate(name: str, block: Block, layers: LayerClasses, pricing: Pricing) -> Candidate:
    """`block`, one layer of each class, as a candidate of the whole graph.

    Raises:
        InputError: a strategy lost a tensor that crosses layers, or the cost model refuses an operator.
    """
    layers_priced = priced_layers(block, layers, pricing)
    priced, repeated = [layer for layer, _ in layers_priced], [again for _, again in layers_priced]
    index = numpy.array(layers.class_of)
    timing = pricing.timing

    def spread(values: Callable[[PricedLayer], Sequence[float]]) -> Array:
        parts = [value for layer in priced for value in values(layer)]
        return numpy.array(parts, dtype=numpy.float64).take(index)

    extra = extra_memory(block, priced, pricing)
    forward = spread(lambda layer: layer.seconds(Direction.FORWARD, timing))
    backward = spread(lambda layer: layer.seconds(Direction.BACKWARD, timing))
    # No schedule is priced for more (`Candidate.weight_gradients`): look-ups find nothing else, and engines that work
    # at the same time, or costs of a model of one's own, may leave less than operators have alone.
    most = backward / 2
    return Candidate(
        name=name,
        degrees=dict(block.degrees),
        width=block.width,
        samples=block.samples,
        micro_batch=block.micro_batch,
        forward=forward,
        backward=backward,
        weight_gradients=numpy.minimum(spread(PricedLayer.weight_gradients), most),
        busy=_busy(priced, len(pricing.cluster.levels)).take(index, axis=1),
        collectives=spread(lambda layer: layer.collectives(timing)),
        state=tuple(_group(group, block, spread, pricing) for group in _groups(block)),
        recompute=modes(priced, repeated, index, pricing, layers.by_operator, extra),
        tensor_bytes=_crossing_bytes(block, layers),
        gathered=extra.gathered,
    )


def _busy(layers: Sequence[PricedLayer], levels: int) -> Array:
    """Seconds for which each part of `layers` occupies a device's port, shape `(levels, parts)`."""
    rows = [
        ahead + behind
        for layer in layers
        for ahead, behind in zip(
            layer.ports(Direction.FORWARD, levels), layer.ports(Direction.BACKWARD, levels), strict=True
        )
    ]
    return numpy.array(rows).T


def priced_layers(block: Block, layers: LayerClasses, pricing: Pricing) -> list[tuple[PricedLayer, bool]]:
    """One layer of each class as `block` has it, priced, and whether it is a transformer block.

    Where none is named, every layer is taken to be one.
    """
    blocks = frozenset(layers.graph.blocks or layers.graph.layers)
    repeated = [layer in blocks for layer in layers.graph.layers]
    return [
        (pricing.layer(originals, operators, again, block, layers.by_operator), again)
        for originals, operators, again in zip(layers.graph.by_layer, block.graph.by_layer, repeated, strict=True)
    ]


def _priced_layer(
    originals: Sequence[Operator],
    operators: Sequence[Operator],
    repeated: bool,
    block: Block,
    pricing: Pricing,
    by_operator: bool,
) -> PricedLayer:
    """A layer as strategies left it, in one part or in one for each of its original operators."""
    rows = tuple(_priced(operators, block, pricing))
    if not by_operator:
        return PricedLayer(rows, (rows,))
    rows_of_operators: list[list[PricedOperator]] = [[] for _ in originals]
    for owner, row in zip(owners(originals, operators), rows, strict=True):
        rows_of_operators[owner].append(row)
    sizes = tensor_bytes([row.operator for row in rows])
    names = passing(originals, inseparable(originals, pricing.training.selective, repeated))
    return PricedLayer(
        rows, tuple(tuple(part) for part in rows_of_operators), sum(sizes.get(name, 0.0) for name in names)
    )


def _priced(operators: Sequence[Operator], block: Block, pricing: Pricing) -> list[PricedOperator]:
    costs = {operator.name: pricing.cost(operator) for operator in operators}

    ring_exposed = pricing.device.calibration.ring_exposed

    def seconds(calls: Sequence[Communication], hiding: float) -> tuple[float, float]:
        """Of calls that run while something else does for `hiding` seconds: what is exposed, and what is hidden."""
        whole = sum(call.count * pricing.call_seconds(call, block) for call in calls)
        exposed_seconds = max(whole - hiding, ring_exposed * whole if hiding else 0.0)
        return exposed_seconds, whole - exposed_seconds

    saving = list(operators)
    if pricing.training.saved_inputs == "narrow":
        saving = with_narrow_copies(operators, lambda each: narrow_format(each, pricing.device, pricing.training))
    rows = []
    for operator, keeping in zip(operators, saving, strict=True):
        made = operator.collective or Collective()
        under = costs.get(made.under, NOTHING)
        forward, hidden_forward = seconds(made.forward, made.share * under.forward)
        backward, hidden_backward = seconds(made.backward, made.share * under.backward)
        hidden = hidden_forward, hidden_backward
        coefficient = pricing.exposed(made, block)
        exposed = getattr(pricing.device.calibration, coefficient) if coefficient else 1.0
        ports = None
        if operator.collective is not None:
            ports = pricing.ports(made.forward, block), pricing.ports(made.backward, block)
        of_weights = min(seconds(made.backward[: made.weight_gradients], 0.0)[0], backward)
        rows.append(
            PricedOperator(
                operator,
                costs[operator.name],
                forward,
                backward,
                hidden,
                coefficient,
                exposed,
                of_weights,
                ports,
                keeping,
            )
        )
    return rows


def _groups(block: Block) -> list[str]:
    """Names of the parameter groups, in the order in which they occur."""
    return list(dict.fromkeys(p.group for operator in block.graph.operators for p in operator.parameters))


def _group(name: str, block: Block, spread: Spread, pricing: Pricing) -> ParameterGroup:
    def count(row: PricedOperator, trained: bool = False) -> int:
        return sum(p.count for p in row.operator.parameters if p.group == name and not (trained and p.frozen))

    away = pricing.host is not None and pricing.host.holds_optimizer
    on_host = pricing.host.update_seconds(pricing.precision, pricing.optimizer) if pricing.host and away else 0.0

    def update(row: PricedOperator) -> float:
        """The group's share of an operator's optimizer step."""
        if away:
            return count(row, trained=True) * on_host
        return row.cost.update * count(row, trained=True) / max(row.operator.trained_count, 1)

    def counts(layer: PricedLayer, trained: bool = False) -> list[float]:
        return layer.once(
            ("count", name, trained),
            lambda: [float(sum(count(row, trained) for row in part)) for part in layer.parts],
        )

    def updates(layer: PricedLayer) -> list[float]:
        return layer.once(("update", name), lambda: [sum(update(row) for row in part) for part in layer.parts])

    parameters, trained = spread(counts), spread(partial(counts, trained=True))
    return ParameterGroup(
        name=name,
        ranks=block.replica_ranks(name),
        weights=parameters * pricing.precision.weights,
        gradients=trained * pricing.precision.gradients,
        optimizer=trained * (0.0 if away else pricing.optimizer.state_bytes(pricing.precision)),
        update=spread(updates),
        pieces=spread(lambda layer: shares(1.0, counts(layer))),
    )


def _crossing_bytes(block: Block, layers: LayerClasses) -> Array:
    sizes = {tensor.name: tensor.bytes for operator in block.graph.operators for tensor in operator.outputs}
    lost = next((name for crossing in layers.crossing for name in crossing.names if name not in sizes), None)
    if lost is not None:
        degrees = ", ".join(name for name, degree in block.degrees if degree > 1) or "none"
        raise InputError(
            f"tensor {lost!r} leaves its layer, but no operator makes it after the strategies were applied "
            f"({degrees}); a strategy must keep the names of tensors that other layers read."
        )
    return numpy.array([float(sum(sizes[name] for name in crossing.names)) for crossing in layers.crossing])


@frozen
class Formulation:
    """Layers and candidates of a problem, and what constraints may ask of the model.

    Attributes:
        graph: the layers.
        candidates: what may be planned with.
        blocks: names of the repeated transformer blocks.
        experts: whether the model has routed experts, or candidates of a profile say how theirs are split.
        operators: names of the operators of each layer of the model, where operators are what is planned.
        together: groups of layers that no cut may part.
        sharded: of a model, the blocks the candidates were made of.
        classes: of a model, its layers by class.
        pricing: of a model, what priced it; on several pools, on the devices of the first that has candidates.
        of_pools: of a model on several pools, what priced it on the devices of each, by name.
        complete: whether the candidates are all there are; else there was no time to price the others.
    """

    graph: LayerGraph
    candidates: tuple[Candidate, ...]
    blocks: tuple[str, ...] = ()
    experts: bool = False
    operators: Mapping[str, tuple[str, ...]] = field(factory=dict)
    together: tuple[tuple[int, ...], ...] = ()
    sharded: tuple[Block, ...] = ()
    classes: LayerClasses | None = None
    pricing: Pricing | None = None
    complete: bool = True
    of_pools: Mapping[str, Pricing] = field(factory=dict)

    def pricing_of(self, candidate: int) -> Pricing | None:
        """What priced a candidate, by index; None: a profile says what it costs."""
        return self.of_pools.get(self.candidates[candidate].pool or "", self.pricing)

    def of(self, cluster: Cluster, training: Training) -> "Formulation":
        """The same for a cluster and a training on which nothing of it depends, such as one with more memory."""
        if self.pricing is None:
            return self
        return evolve(self, pricing=evolve(self.pricing, cluster=cluster, training=training))

    def units(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The layers of the model in order, each with its name and what is planned of it, as indices."""
        position = {name: index for index, name in enumerate(self.graph.layers)}
        groups = [tuple(position[name] for name in names) for names in self.operators.values()]
        home = {layer: group for group in groups for layer in group}
        named = {home[position[names[0]]]: name for name, names in self.operators.items()}
        units = dict.fromkeys(home.get(layer, (layer,)) for layer in self.graph.topological_order())
        return tuple((named.get(unit, self.graph.layers[unit[0]]), unit) for unit in units)

    def even_blocks(self) -> tuple[tuple[int, ...], ...]:
        """What even splits count: the layers of each block in order, the embedding with the first, head with the last.

        Every layer of the model counts as a block but those called `embedding` and `head` at the ends.
        """
        order = list(self.units())
        first = [order.pop(0)] if order[0][0] == "embedding" and len(order) > 1 else []
        last = [order.pop()] if order[-1][0] == "head" and len(order) > 1 else []
        blocks = [layers for _, layers in order]
        blocks[0] = tuple(layer for _, layers in first for layer in layers) + blocks[0]
        blocks[-1] += tuple(layer for _, layers in last for layer in layers)
        return tuple(blocks)

    def blocks_and_ends(self) -> tuple[tuple[int, ...], ...]:
        """As `even_blocks`, but embedding and head count as blocks of their own; none where the model lacks one.

        Megatron-LM counts so with `--account-for-embedding-in-pipeline-split` and
        `--account-for-loss-in-pipeline-split`, with which Llama 3.1's 126 blocks make 128 chunks.
        """
        order = self.units()
        ends = (order[0][0], order[-1][0])
        return tuple(layers for _, layers in order) if ends == ("embedding", "head") else ()
