"""Formulation of a problem: layers, candidates, and what they were made of."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING

import numpy
from attrs import evolve, field, frozen

from nest.instance import Candidate, Cluster, LayerGraph, Solution
from nest.records import Record
from nest.spec import Training

if TYPE_CHECKING:
    from nest.formulate.layer_classes import LayerClasses
    from nest.formulate.pricing import Pricing
    from nest.formulate.worth import BoundedCandidates
    from nest.graph import Block

FirstPlan = tuple[Solution, float]  # A plan of some candidates, with its step time in seconds.


@frozen(eq=False, repr=False)
class Formulation(Record):
    """Layers and candidates of a problem, and facts on the model for constraints.

    Attributes:
        graph: the layers.
        candidates: the candidates of plans.
        blocks: names of the repeated transformer blocks.
        experts: whether the model has routed experts, or candidates of a profile tell how theirs are split.
        operators: names of the operators of each layer of the model, if operators are planned.
        together: groups of layers that no cut may separate.
        sharded: of a model, the blocks of the candidates.
        classes: of a model, its layers by class.
        pricing: of a model, its prices; on several pools, on the devices of the first with candidates.
        of_pools: of a model on several pools, prices on the devices of each, by name.
        flops: of a model, model FLOP of a sample's forward pass.
        complete_to: lower bound on device seconds per sample of candidates left out; infinite: there are none, 0: there
            was no time to price them.
        computed_to: same for their compute alone, at any speed of the network.
        first: a known plan of these candidates, with its step time in seconds; None: unknown.
        bounded: prices more candidates; None: missing ones have no bounds, or there are none.
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
    bounded: BoundedCandidates | None = None
    of_pools: Mapping[str, Pricing] = field(factory=dict)
    flops: float | None = None

    def pricing_of(self, candidate: int) -> Pricing | None:
        """Prices of a candidate, by index; None: it is from a profile."""
        return self.of_pools.get(self.candidates[candidate].pool or "", self.pricing)

    def of(self, cluster: Cluster, training: Training) -> Formulation:
        """Same for a cluster and a training on which it does not depend, such as one with more memory."""
        if self.pricing is None:
            return self
        return evolve(self, pricing=self.pricing.with_training(cluster, training))

    def computing(self) -> tuple[Candidate, ...]:
        """Candidates of a model with free communication inside blocks."""
        from nest.formulate.operator_costs import Direction, computing_weight_gradients
        from nest.formulate.pricing import priced_layers

        assert self.classes is not None
        assert self.pricing is not None
        index, timing = numpy.array(self.classes.class_of), self.pricing.timing
        result = []
        for each, block in zip(self.candidates, self.sharded, strict=True):
            layers = [layer for layer, _ in priced_layers(block, self.classes, self.pricing)]
            forward, backward, gradients = (
                numpy.array([value for layer in layers for value in values(layer)]).take(index)
                for values in (
                    lambda layer: layer.seconds(Direction.FORWARD, timing, silent=True),
                    lambda layer: layer.seconds(Direction.BACKWARD, timing, silent=True),
                    lambda layer: [sum(computing_weight_gradients(r.operator, r.cost) for r in p) for p in layer.parts],
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
        """Layers of the model in order, each with its name and the indices of its planned layers."""
        position = {name: index for index, name in enumerate(self.graph.layers)}
        groups = [tuple(position[name] for name in names) for names in self.operators.values()]
        home = {layer: group for group in groups for layer in group}
        named = {home[position[names[0]]]: name for name, names in self.operators.items()}
        units = dict.fromkeys(home.get(layer, (layer,)) for layer in self.graph.topological_order())
        return tuple((named.get(unit, self.graph.layers[unit[0]]), unit) for unit in units)

    def recomputed_units(self) -> tuple[tuple[int, ...], ...]:
        """Units of partial recomputation: layers of each transformer block in order; without blocks, all."""
        return tuple(layers for name, layers in self.units() if name in self.blocks or not self.blocks)

    def even_blocks(self) -> tuple[tuple[int, ...], ...]:
        """Units of even splits: layers of each block, with the embedding in the first and the head in the last.

        Every layer of the model counts as a block, except `embedding` and `head` at the ends.
        """
        order = list(self.units())
        first = [order.pop(0)] if order[0][0] == "embedding" and len(order) > 1 else []
        last = [order.pop()] if order[-1][0] == "head" and len(order) > 1 else []
        blocks = [layers for _, layers in order]
        blocks[0] = tuple(layer for _, layers in first for layer in layers) + blocks[0]
        blocks[-1] += tuple(layer for _, layers in last for layer in layers)
        return tuple(blocks)

    def blocks_and_ends(self) -> tuple[tuple[int, ...], ...]:
        """Same as `even_blocks`, but embedding and head count as blocks; empty if the model lacks one.

        Megatron-LM counts so with `--account-for-embedding-in-pipeline-split` and
        `--account-for-loss-in-pipeline-split`, which turn Llama 3.1's 126 blocks into 128 chunks.
        """
        order = self.units()
        ends = (order[0][0], order[-1][0])
        return tuple(layers for _, layers in order) if ends == ("embedding", "head") else ()


def kept_together(granularity: str, graph: LayerGraph) -> tuple[tuple[int, ...], ...]:
    """Groups of layers that `search.granularity: block` keeps together."""
    if granularity != "block":
        return ()
    from nest.formulate.partition import branched_regions

    return branched_regions(graph)
