"""From a block of operators to a candidate in numbers (PROBLEM.md section 2), and what all candidates were made of."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf

import numpy
from attrs import evolve, field, frozen

from nest.errors import InputError
from nest.formulate.layer_classes import LayerClasses
from nest.formulate.memory import extra_memory, modes
from nest.formulate.operator_costs import Direction, PricedLayer, PricedOperator, shares
from nest.formulate.pricing import Pricing, priced_layers
from nest.graph import Block
from nest.instance import Array, Candidate, Cluster, LayerGraph, ParameterGroup, Solution
from nest.spec import Training

Spread = Callable[[Callable[[PricedLayer], Sequence[float]]], Array]
"""From the numbers of the parts of a layer to an array over the planned layers."""

FirstPlan = tuple[Solution, float]
"""A plan of some candidates, with its step time in seconds."""


def candidate(
    name: str,
    block: Block,
    layers: LayerClasses,
    pricing: Pricing,
    known: Candidate | None = None,
    *,
    same_device: bool = True,
    pool: str | None = None,
) -> Candidate:
    """`block`, one layer of each class, as a candidate of the whole graph.

    Args:
        name: of the candidate.
        block: the layers as strategies left them.
        layers: classes of layers.
        pricing: prices operators.
        known: the same on another network or device; None: nothing of it is known.
        same_device: whether the device is that of the one known.
        pool: name of the pool whose device it is priced on, as `Candidate.pool`.

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
        busy=_busy(priced, len(pricing.cluster.levels)).take(index, axis=1),
        collectives=spread(lambda layer: layer.collectives(timing)),
        state=_state(block, spread, pricing, known, same_device),
        recompute=modes(priced, repeated, index, pricing, layers.by_operator, extra),
        tensor_bytes=known.tensor_bytes if known else _crossing_bytes(block, layers),
        gathered=extra.gathered,
        pool=pool,
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


def _state(
    block: Block, spread: Spread, pricing: Pricing, known: Candidate | None, same_device: bool
) -> tuple[ParameterGroup, ...]:
    """The parameter groups, in the order in which they occur; on another device than `known` only steps differ."""
    if known is None:
        names = dict.fromkeys(p.group for operator in block.graph.operators for p in operator.parameters)
        return tuple(_group(name, block, spread, pricing) for name in names)
    if same_device:
        return known.state
    return tuple(evolve(each, update=spread(_updates(each.name, pricing))) for each in known.state)


def _count(row: PricedOperator, name: str, trained: bool = False) -> int:
    """Parameters that an operator has of a group."""
    return sum(p.count for p in row.operator.parameters if p.group == name and not (trained and p.frozen))


def _updates(name: str, pricing: Pricing) -> Callable[[PricedLayer], Sequence[float]]:
    """Gives what a group's optimizer step takes in each part of a layer, seconds."""
    away = pricing.host is not None and pricing.host.holds_optimizer
    on_host = pricing.host.update_seconds(pricing.precision, pricing.optimizer) if pricing.host and away else 0.0

    def update(row: PricedOperator) -> float:
        """The group's share of an operator's optimizer step."""
        if away:
            return _count(row, name, trained=True) * on_host
        return row.cost.update * _count(row, name, trained=True) / max(row.operator.trained_count, 1)

    return lambda layer: layer.once_everywhere(
        ("update", name), lambda: [sum(update(row) for row in part) for part in layer.parts]
    )


def _group(name: str, block: Block, spread: Spread, pricing: Pricing) -> ParameterGroup:
    away = pricing.host is not None and pricing.host.holds_optimizer

    def counts(layer: PricedLayer, trained: bool = False) -> list[float]:
        return layer.once_untimed(
            ("count", name, trained),
            lambda: [float(sum(_count(row, name, trained) for row in part)) for part in layer.parts],
        )

    parameters, trained = spread(counts), spread(partial(counts, trained=True))
    return ParameterGroup(
        name=name,
        ranks=block.replica_ranks(name),
        weights=parameters * pricing.precision.weights,
        gradients=trained * pricing.precision.gradients,
        optimizer=trained * (0.0 if away else pricing.optimizer.state_bytes(pricing.precision)),
        update=spread(_updates(name, pricing)),
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
    # Layers of a class send tensors of the same names.
    known = {names: float(sum(sizes[name] for name in names)) for names in {each.names for each in layers.crossing}}
    return numpy.array([known[each.names] for each in layers.crossing])


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
        complete_to: device seconds for a sample that layers of candidates which are missing take at least; infinite:
            there are none, 0: there was no time to price the others.
        computed_to: the same of what they compute alone, at any speed of the network.
        first: a plan of these candidates that is known, with its step time in seconds; None: none is.
        up_to: gives the formulation that is complete to so many device seconds for a sample, and to so many computed
            alone, with few candidates more; None: it is not known what those take that are missing, or there are none.
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
    complete_to: float = inf
    first: FirstPlan | None = None
    computed_to: float = inf
    up_to: "Callable[[float, float], Formulation] | None" = None
    of_pools: Mapping[str, Pricing] = field(factory=dict)

    def pricing_of(self, candidate: int) -> Pricing | None:
        """What priced a candidate, by index; None: a profile says what it costs."""
        return self.of_pools.get(self.candidates[candidate].pool or "", self.pricing)

    def of(self, cluster: Cluster, training: Training) -> "Formulation":
        """The same for a cluster and a training on which nothing of it depends, such as one with more memory."""
        if self.pricing is None:
            return self
        return evolve(self, pricing=self.pricing.beside(cluster, training))

    def computing(self) -> tuple[Candidate, ...]:
        """The candidates of a model as if what is sent inside their blocks took no time."""
        assert self.classes is not None
        assert self.pricing is not None
        index, timing = numpy.array(self.classes.class_of), self.pricing.timing
        result = []
        for each, block in zip(self.candidates, self.sharded, strict=True):
            layers = [layer.alone for layer, _ in priced_layers(block, self.classes, self.pricing)]
            forward, backward, gradients = (
                numpy.array([value for layer in layers for value in values(layer)]).take(index)
                for values in (
                    lambda layer: layer.seconds(Direction.FORWARD, timing),
                    lambda layer: layer.seconds(Direction.BACKWARD, timing),
                    PricedLayer.weight_gradients,
                )
            )
            result.append(
                evolve(
                    each,
                    forward=forward,
                    backward=backward,
                    weight_gradients=numpy.minimum(gradients, backward / 2),
                    busy=numpy.zeros_like(each.busy),
                    collectives=numpy.zeros_like(forward),
                )
            )
        return tuple(result)

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
