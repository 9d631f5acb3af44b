"""Prices of layers from operators: compute, communication, and caches for common parts."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy
from attrs import asdict, define, evolve, field, frozen

from nest.catalogue import Optimizer, Precision, scale_up_levels
from nest.formulate.layer_classes import LayerClasses
from nest.formulate.operator_costs import Calls, PricedLayer, PricedOperator, Shape, Timing, engine_of
from nest.formulate.recompute import Host, host, narrow_format, tensor_bytes, with_narrow_copies
from nest.formulate.shard import Made, capacity_flags
from nest.graph import Block, Collective, Communication, Operator
from nest.hooks.protocols import CostModel, LayerTimes, OperatorCost
from nest.instance import Array, Cluster, CollectiveModel
from nest.reuse import once
from nest.spec import DeviceSpec, Training
from nest.spec.device import MATRIX

Extra = TypeVar("Extra")

NOTHING = OperatorCost(0.0, 0.0)  # Compute of a communication operator.

PIECEWISE = "tensor"
"""Key of `training.overlap` whose collectives are split into pieces through buffers shared inside a node."""


@frozen
class _KnownLayer:
    """A priced layer."""

    layer: PricedLayer
    reach: int  # Outermost level of its collectives; -1: none.


@frozen(slots=False)
class Pricing:
    """Prices of operators."""

    cluster: Cluster
    device: DeviceSpec
    training: Training
    precision: Precision  # Bytes per parameter.
    optimizer: Optimizer  # State per parameter.
    costs: CostModel  # Prices operators that compute.
    collectives: CollectiveModel  # Prices operators that communicate.
    layer_times: LayerTimes  # Combines the times of a layer's operators.
    host: Host | None = None  # Keeps state or activations; None: all stays on the device.
    # Names of the transformer blocks in the layers' graph.
    blocks: Made = field(factory=dict, init=False, repr=False, eq=False)
    compute_costs: dict[Operator, OperatorCost] = field(factory=dict, init=False, repr=False, eq=False)
    _shapes: dict[tuple[tuple[int, int], int], tuple[tuple[int, ...], ...]] = field(
        factory=dict, init=False, repr=False, eq=False
    )
    _layers: dict[Hashable, _KnownLayer] = field(factory=dict, init=False, repr=False, eq=False)
    _extra: dict[Hashable, tuple[Block, Any]] = field(factory=dict, init=False, repr=False, eq=False)
    _previous_layers: dict[Hashable, _KnownLayer] = field(factory=dict, init=False, repr=False, eq=False)
    # Whether calls that no operator hides take and expose there what they do here.
    _same_calls: bool = field(default=False, init=False, repr=False, eq=False)

    def on_cluster(self, cluster: Cluster, device: DeviceSpec) -> "Pricing":
        """Same on another network of as many levels or another device; equal parts are not priced again."""
        other = evolve(self, cluster=cluster, device=device, host=host(device, self.training))
        other.blocks.update(self.blocks)
        widths = {width for _, width in self._shapes}
        alike = {width for width in widths if cluster.parts(width) == self.cluster.parts(width)}
        other._shapes.update({key: shapes for key, shapes in self._shapes.items() if key[1] in alike})
        if cluster == self.cluster:
            other.__dict__["calls"] = self.calls
            other.__dict__["_same_calls"] = device.calibration == self.device.calibration
        if device.memory_overheads == self.device.memory_overheads:
            for key, known in self._extra.items():
                if capacity_flags(known[0], cluster) == capacity_flags(known[0], self.cluster):
                    other._extra[key] = known
        if device != self.device:
            # Copies in a narrow format are kept where the device computes in it.
            if self.training.saved_inputs != "narrow" or _formats(device) == _formats(self.device):
                other._previous_layers.update(self._layers)
            return other
        # Keys contain the placement of ranks, which covers effects of fan-outs.
        changed = other.innermost_changed_level(self)
        other.compute_costs.update(self.compute_costs)
        other._layers.update({key: each for key, each in self._layers.items() if each.reach < changed})
        other._previous_layers.update(self._layers)
        return other

    def with_training(self, cluster: Cluster, training: Training) -> "Pricing":
        """Same for a cluster and a training with equal costs; prices are kept."""
        other = evolve(self, cluster=cluster, training=training)
        other.blocks.update(self.blocks)
        other.compute_costs.update(self.compute_costs)
        other._shapes.update(self._shapes)
        other._layers.update(self._layers)
        other._extra.update(self._extra)
        return other

    def innermost_changed_level(self, before: "Pricing") -> int:
        """Innermost level over which calls cost something else than in `before`; the number of levels: none."""
        if self.calls.inside != before.calls.inside:
            return 0
        levels = ([evolve(level, fanout=1) for level in each.cluster.levels] for each in (before, self))
        same = (here == there for here, there in zip(*levels, strict=True))
        return next((index for index, each in enumerate(same) if not each), len(self.cluster.levels))

    def is_unchanged(self, block: Block, before: "Pricing", changed: int) -> bool:
        """True if a block's needs and all its layers cost the same as in `before`, on the same device.

        Args:
            block: of the same operators.
            before: prices on a network of as many levels.
            changed: `innermost_changed_level` of that.
        """
        if capacity_flags(block, self.cluster) != capacity_flags(block, before.cluster):
            return False
        shapes = [(self.shapes(axis, block), before.shapes(axis, block)) for axis in block.called]
        return all(now == then and all(max(shape[changed:], default=1) == 1 for shape in now) for now, then in shapes)

    def once(self, block: Block, make: Callable[[], Extra]) -> Extra:
        """Cache extra memory of a block, independent of the network."""
        key = block.micro_batch, block.degrees
        if key not in self._extra:
            self._extra[key] = block, make()
        extra: Extra = self._extra[key][1]
        return extra

    def cost(self, operator: Operator) -> OperatorCost:
        """Cost of an operator's compute, priced once: strategies leave most operators unchanged."""
        if operator.collective is not None:
            return NOTHING
        return once(self.compute_costs, operator, lambda: self.costs.price(operator, self.device, self.training))

    def shapes(self, axis: str, block: Block) -> tuple[tuple[int, ...], ...]:
        """Distinct shapes of the rank groups along `axis`; those of one block, as blocks are aligned."""
        key = block.lie(axis), block.width
        return once(self._shapes, key, lambda: self.cluster.shapes(numpy.array(block.groups(axis), dtype=numpy.int64)))

    @cached_property
    def calls(self) -> Calls:
        """Prices of collective calls."""
        return Calls(self.cluster, self.collectives, self.training, scale_up_levels(self.cluster.levels))

    def call_seconds(self, call: Communication, block: Block) -> float:
        """Seconds of one call."""
        return self.calls.seconds(call, self.shapes(call.axis, block), block.lie(call.axis)[1])

    def seconds(self, calls: Iterable[Communication], block: Block) -> float:
        """Total seconds of calls, one after the other."""
        return sum([call.count * self.call_seconds(call, block) for call in calls])

    def ports(self, made: Collective, block: Block) -> Callable[[], tuple[Array, Array]]:
        """Function for the seconds that a collective's calls occupy a device's port, forward and backward.

        Computed on demand: candidates that cannot win never need it. The function holds no reference to this object,
        which would keep all networks that were priced before.
        """
        ways = [
            [(call, self.shapes(call.axis, block), block.lie(call.axis)[1]) for call in calls]
            for calls in (made.forward, made.backward)
        ]
        return _Ports(self.calls, ways)

    @cached_property
    def timing(self) -> Timing:
        """Combines operators' times."""
        return Timing(self.layer_times, self.device.engines, self.training.host_launch(self.device))

    def exposed(self, made: Collective, block: Block) -> tuple[str, float]:
        """Coefficient for the exposed share of overlapped calls, and that share; empty and 1: all is exposed."""
        coefficient = self._coefficient(made, block)
        return coefficient, getattr(self.device.calibration, coefficient) if coefficient else 1.0

    def _coefficient(self, made: Collective, block: Block) -> str:
        """Coefficient for the exposed share of overlapped calls; empty: none are overlapped.

        If tensor-parallel overlap only covers the scale-up network, every rank group must be inside, and the calls must
        be gathers and scatters, which go piece by piece (NVIDIA/TransformerEngine, issues 746 and 1071).
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
        """Cached `_priced_layer`, by operators and placement of their collectives' ranks."""
        axes = dict.fromkeys(call.axis for operator in operators for call in operator.calls)
        key = operators, *((block.lie(axis)[1], self.shapes(axis, block)) for axis in axes)
        if key not in self._layers:
            known = self._previous_layers.get(key)
            if known is None:
                every = [shape for axis in axes for shape in self.shapes(axis, block)]
                reach = max((index for shape in every for index, some in enumerate(shape) if some > 1), default=-1)
                layer = _priced_layer(originals, operators, repeated, block, self, fine)
                self._layers[key] = _KnownLayer(layer, reach)
            else:
                rows = _priced(operators, block, self, [row.kept for row in known.layer.rows], known.layer.rows)
                self._layers[key] = evolve(known, layer=known.layer.elsewhere(rows))
        return self._layers[key].layer


def _formats(device: DeviceSpec) -> set[str]:
    return {name for name, peak in asdict(device.peak).items() if peak is not None}


@define(eq=False, repr=False)
class _Ports:
    """Seconds by level that calls, with the shapes of their groups and members, occupy a port, each way."""

    calls: Calls
    ways: Sequence[Sequence[tuple[Communication, tuple[Shape, ...], int]]]
    _known: tuple[Array, Array] | None = field(default=None, init=False)

    def __call__(self) -> tuple[Array, Array]:
        if self._known is None:
            levels = len(self.calls.cluster.levels)
            forward, backward = (
                sum((self.calls.ports(*each) for each in way), numpy.zeros(levels)) for way in self.ways
            )
            self._known = forward, backward
        return self._known


def priced_layers(block: Block, layers: LayerClasses, pricing: Pricing) -> list[tuple[PricedLayer, bool]]:
    """One priced layer of each class of `block`, and whether it is a transformer block.

    If none is named, every layer counts as one.
    """
    blocks = frozenset(layers.graph.blocks or layers.graph.layers)
    repeated = [layer in blocks for layer in layers.graph.layers]
    return [
        (pricing.layer(originals, operators, again, block, layers.by_operator), again)
        for originals, operators, again in zip(layers.graph.by_layer, block.graph.by_layer, repeated, strict=True)
    ]


def loads(operators: Sequence[Operator], block: Block, pricing: Pricing, *, silent: bool = False) -> Array:
    """Seconds that operators of a layer occupy each engine, and links, shape `(2, engines + 1)`: forward and backward.

    A lower bound on a layer: no engine runs two operators at a time, and no links carry two calls (`Timing.seconds`).
    Calls under an absent operator, or with `silent`, count as 0. There is at least one engine.
    """
    names = {operator.name for operator in operators}
    there = [each for each in operators if each.collective is None or each.collective.under in {"", *names}]
    engines = pricing.device.engines
    place = {engine: index for index, engine in enumerate(dict.fromkeys((MATRIX, *engines)))}
    costs = {operator.name: pricing.cost(operator) for operator in there}
    forward, backward = seconds = [[0.0] * (len(place) + 1) for _ in range(2)]
    for operator in there:
        engine, cost = place[engine_of(operator, engines)], costs[operator.name]
        forward[engine] += cost.forward
        backward[engine] += cost.backward
        if operator.collective is not None and not silent:
            exposed, ways = pricing.exposed(operator.collective, block)[1], _ways(operator, costs, block, pricing)
            for busy, (longer, under) in zip(seconds, ways, strict=True):
                busy[engine] += exposed * longer
                busy[-1] += longer + under
    return numpy.array(seconds)


def _priced_layer(
    originals: Sequence[Operator],
    operators: Sequence[Operator],
    repeated: bool,
    block: Block,
    pricing: Pricing,
    by_operator: bool,
) -> PricedLayer:
    """A layer after strategies, in one part or in one for each original operator."""
    keeping = list(operators)
    if pricing.training.saved_inputs == "narrow":
        keeping = with_narrow_copies(operators, lambda each: narrow_format(each, pricing.device, pricing.training))
    rows = tuple(_priced(operators, block, pricing, keeping, [None] * len(keeping)))
    if not by_operator:
        return PricedLayer(rows, (rows,))
    from nest.formulate.partition import inseparable, owners, passing

    rows_of_operators: list[list[PricedOperator]] = [[] for _ in originals]
    for owner, row in zip(owners(originals, operators), rows, strict=True):
        rows_of_operators[owner].append(row)
    sizes = tensor_bytes([row.operator for row in rows])
    names = passing(originals, inseparable(originals, pricing.training.selected, repeated))
    return PricedLayer(
        rows, tuple(tuple(part) for part in rows_of_operators), sum(sizes.get(name, 0.0) for name in names)
    )


def _priced(
    operators: Sequence[Operator],
    block: Block,
    pricing: Pricing,
    keeping: Sequence[Operator],
    elsewhere: Sequence[PricedOperator | None],
) -> list[PricedOperator]:
    """Operators with their times; `keeping`: each with what it really saves for its backward pass.

    `elsewhere`: each as priced on another network or device, reused if unchanged.
    """
    costs = {operator.name: pricing.cost(operator) for operator in operators}
    return [
        _row(operator, kept, before, costs, block, pricing)
        for operator, kept, before in zip(operators, keeping, elsewhere, strict=True)
    ]


def _row(
    operator: Operator,
    kept: Operator,
    elsewhere: PricedOperator | None,
    costs: Mapping[str, OperatorCost],
    block: Block,
    pricing: Pricing,
) -> PricedOperator:
    cost, made = costs[operator.name], operator.collective
    if elsewhere is not None and (elsewhere.cost is cost if made is None else pricing._same_calls and not made.under):
        return elsewhere
    if made is None:
        return PricedOperator(operator, cost, 0.0, 0.0, kept=kept)
    (forward, hidden_forward), (backward, hidden_backward) = _ways(operator, costs, block, pricing)
    coefficient, exposed = pricing.exposed(made, block)
    of_weights = min(pricing.seconds(made.backward[: made.weight_gradients], block), backward)
    hidden, ports = (hidden_forward, hidden_backward), pricing.ports(made, block)
    return PricedOperator(operator, cost, forward, backward, hidden, coefficient, exposed, of_weights, ports, kept)


def _ways(
    operator: Operator, costs: Mapping[str, OperatorCost], block: Block, pricing: Pricing
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Seconds of an operator's calls, forward and backward: beyond what hides them, and hidden.

    `costs` has, by name, what may hide them.
    """
    made, ring_exposed = operator.collective or Collective(), pricing.device.calibration.ring_exposed
    under = costs.get(made.under, NOTHING)

    def seconds(calls: Sequence[Communication], hiding: float) -> tuple[float, float]:
        whole = pricing.seconds(calls, block)
        longer = max(whole - hiding, ring_exposed * whole if hiding else 0.0)
        return longer, whole - longer

    return seconds(made.forward, made.share * under.forward), seconds(made.backward, made.share * under.backward)
