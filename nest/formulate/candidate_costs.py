"""Costs a block of operators as a candidate in numbers (PROBLEM.md section 2)."""

from collections.abc import Callable, Sequence

import numpy
from attrs import evolve

from nest.errors import InputError
from nest.formulate.layer_classes import LayerClasses
from nest.formulate.memory import extra_memory, modes
from nest.formulate.operator_costs import Direction, PricedLayer, PricedOperator, shares
from nest.formulate.pricing import Pricing, priced_layers
from nest.graph import Block, Operator, Parameter
from nest.instance import Array, Candidate, ParameterGroup

Spread = Callable[[Callable[[PricedLayer], Sequence[float]]], Array]
"""Maps numbers by part of a layer to an array over the planned layers."""


def candidate(
    name: str,
    block: Block,
    layers: LayerClasses,
    pricing: Pricing,
    known: Candidate | None = None,
    *,
    same_device: bool = True,
    same_network: bool = False,
    pool: str | None = None,
) -> Candidate:
    """Price `block`, one layer of each class, as a candidate of the whole graph.

    Args:
        known: same candidate on another network or device; None: nothing to reuse.
        same_device: `known` has the same device.
        same_network: `known` has the same cluster, so that calls occupy ports equally long.
        pool: name of the device's pool (`Candidate.pool`).

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

    extra = pricing.once(block, lambda: extra_memory(block, priced, pricing))
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
        busy=known.busy if known and same_network else _busy(priced, len(pricing.cluster.levels)).take(index, axis=1),
        collectives=spread(lambda layer: layer.collectives(timing)),
        state=_state(block, spread, pricing, known, same_device),
        recompute=modes(priced, repeated, index, pricing, layers.by_operator, extra),
        tensor_bytes=known.tensor_bytes if known else _crossing_bytes(block, layers),
        gathered=extra.gathered,
        pool=pool,
    )


def _busy(layers: Sequence[PricedLayer], levels: int) -> Array:
    """Seconds that each part of `layers` occupies a device's port, shape `(levels, parts)`."""
    rows = [
        ahead + behind
        for layer in layers
        for ahead, behind in zip(
            layer.ports(Direction.FORWARD, levels), layer.ports(Direction.BACKWARD, levels), strict=True
        )
    ]
    return numpy.array(rows).T


def _state(
    block: Block, spread: Spread, pricing: Pricing, known: Candidate | None, same_device: bool
) -> tuple[ParameterGroup, ...]:
    """Parameter groups in order of appearance; on another device than `known` only optimizer steps differ."""
    if known is None:
        names = dict.fromkeys(p.group for operator in block.graph.operators for p in operator.parameters)
        return tuple(_group(name, block, spread, pricing) for name in names)
    if same_device:
        return known.state
    return tuple(evolve(each, update=spread(_updates(each.name, pricing))) for each in known.state)


def _sums(name: str, key: str, value: Callable[[Operator, Parameter], float]) -> Callable[[PricedLayer], list[float]]:
    """Function for the sums of `value` over a group's parameters in each part of a layer, cached under `key`."""
    return lambda layer: layer.once_untimed(
        (key, name),
        lambda: [
            float(sum([value(row.operator, p) for row in part for p in row.operator.parameters if p.group == name]))
            for part in layer.parts
        ],
    )


def _updates(name: str, pricing: Pricing) -> Callable[[PricedLayer], Sequence[float]]:
    """Function for the seconds of a group's optimizer step in each part of a layer."""
    away = pricing.host is not None and pricing.host.holds_optimizer
    on_host = pricing.host.update_seconds(pricing.precision, pricing.optimizer) if pricing.host and away else 0.0

    def update(row: PricedOperator) -> float:
        count = sum([p.count for p in row.operator.parameters if p.group == name and not p.frozen])
        return count * on_host if away else row.cost.update * count / max(row.operator.trained_count, 1)

    return lambda layer: layer.once_everywhere(
        ("update", name), lambda: [sum(update(row) for row in part if row.operator.parameters) for part in layer.parts]
    )


def _group(name: str, block: Block, spread: Spread, pricing: Pricing) -> ParameterGroup:
    away, itemsize = pricing.host is not None and pricing.host.holds_optimizer, pricing.precision.weights
    counts = _sums(name, "count", lambda _, p: p.count)
    trained = spread(_sums(name, "trained", lambda _, p: 0 if p.frozen else p.count))
    state = trained * (0.0 if away else pricing.optimizer.state_bytes(pricing.precision))
    if pricing.optimizer.matrix_moments is not None and not away:
        matrices = spread(_sums(name, "matrices", lambda operator, p: p.count * operator.trains_matrix(p)))
        state += matrices * (pricing.optimizer.matrix_moments - pricing.optimizer.moments)
    return ParameterGroup(
        name=name,
        ranks=block.replica_ranks(name),
        weights=spread(_sums(name, "bytes", lambda _, p: p.count * (p.itemsize or itemsize))),
        gradients=trained * pricing.precision.gradients,
        optimizer=state,
        update=spread(_updates(name, pricing)),
        pieces=spread(lambda layer: shares(1.0, counts(layer))),
    )


def _crossing_bytes(block: Block, layers: LayerClasses) -> Array:
    sizes = {tensor.name: tensor.bytes for operator in block.graph.operators for tensor in operator.outputs}
    lost = next((name for crossing in layers.crossing for name in crossing.names if name not in sizes), None)
    if lost is not None:
        degrees = ", ".join(name for name, degree in block.degrees if degree > 1) or "none"
        raise InputError(
            f"with {degrees}, no operator writes tensor {lost!r}, which another layer reads; a strategy must keep "
            "such names."
        )
    # Layers of a class send tensors of the same names.
    known = {names: float(sum(sizes[name] for name in names)) for names in {each.names for each in layers.crossing}}
    return numpy.array([known[each.names] for each in layers.crossing])
