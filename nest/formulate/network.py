"""Non-hierarchical networks for placed plans: paths and rings, and candidates priced on any devices."""

from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import mul

from attrs import evolve

from nest.formulate.candidate_costs import candidate
from nest.formulate.cluster import time_scale
from nest.formulate.formulation import Formulation
from nest.formulate.topology import loaded, reduced_network
from nest.graph import Block
from nest.hooks.registry import Registry
from nest.instance import (
    Candidate,
    Cluster,
    CollectiveModel,
    Instance,
    Level,
    NetworkModel,
    PlacedNetwork,
    RingPricing,
    Solution,
)
from nest.instance.pairs import Pairs
from nest.network import LinkGraph, Reduced, forwards, network_model
from nest.plan.evaluate import evaluate
from nest.spec import ClusterSpec
from nest.tolerances import CONTENDING_MEMORY_SLACK

MOST_DEVICES = 1024  # Most devices for placing plans on the network itself; larger ones are planned on levels.


def no_hierarchy(cluster: ClusterSpec, registry: Registry) -> tuple[LinkGraph | Pairs, Reduced] | None:
    """A non-hierarchical network, as written and as reduced to levels; None: it is a hierarchy.

    A network whose devices forward is none even if all pairs are alike: forwarding uses their bandwidth.
    """
    if cluster.topology is None:
        return None
    network = loaded(cluster.topology, registry, None)
    if isinstance(network, Cluster):
        return None
    reduced = reduced_network(network)
    hops = reduced.pairs.hops
    # Of links hops are known, of measured pairs they are not, and nobody forwards.
    forwarding = isinstance(network, LinkGraph) and hops is not None and forwards(network, hops)
    return None if reduced.best.hierarchy and not forwarding else (network, reduced)


def by_levels_notice(cluster: ClusterSpec, registry: Registry) -> str | None:
    """Note that a network is no hierarchy and too large for planning by links; None: no note."""
    found = no_hierarchy(cluster, registry)
    if found is None or found[1].pairs.size <= MOST_DEVICES:
        return None
    return (
        f"cluster.topology: the network has {found[1].pairs.size} devices; above {MOST_DEVICES}, nest plans on "
        "levels as slow as their slowest pair. Proofs hold for these levels."
    )


def placeable(cluster: ClusterSpec, registry: Registry, *, all_ports: bool) -> NetworkModel | None:
    """Network for placing plans, devices in the order of its levels; None: plans use levels."""
    found = no_hierarchy(cluster, registry)
    if found is None or found[1].pairs.size > MOST_DEVICES:
        return None  # `by_levels_notice` tells of the latter.
    network, reduced = found
    return network_model(network, reduced.best.order, all_ports=all_ports, slower=time_scale(cluster))


def with_network(instance: Instance, formulation: Formulation, model: NetworkModel) -> Instance:
    """Add a network, for placing and pricing its plans, to an instance priced on the optimistic level.

    A port's occupation on a single level may use several links of the network, so candidates lose their `busy`.
    """
    collectives = instance.collectives
    factors = tuple(map(_factors, formulation.sharded)) or ((),) * len(instance.candidates)
    network = PlacedNetwork(
        model=model,
        factors=factors,
        repriced=_repricing(formulation, collectives),
        collectives=collectives,
        price=_price,
    )
    return evolve(
        instance,
        candidates=tuple(map(_without_ports, instance.candidates)),
        collectives=RingPricing(collectives, model.least_rings),
        network=network,
    )


def _price(instance: Instance, solution: Solution) -> tuple[float, tuple[bool, ...]]:
    priced = evaluate(instance, solution)
    return priced.batch_time, priced.exceeding(CONTENDING_MEMORY_SLACK)


def _without_ports(candidate: Candidate) -> Candidate:
    return evolve(candidate, busy=None, recompute=tuple(evolve(mode, busy=None) for mode in candidate.recompute))


def _factors(block: Block) -> tuple[int, ...]:
    """Factors of a block's width, innermost first: every collective runs over the ranks of some of them.

    If axes and folds are no such product, the whole block is one set.
    """
    outer = list(accumulate((axis.degree for axis in block.axes), mul, initial=1))
    ends = sorted({*outer, *(each for fold in block.folds for each in (fold.stride, fold.stride * fold.degree))})
    if any(more % fewer for fewer, more in pairwise(ends)):
        ends = [1, block.width]
    return tuple(more // fewer for fewer, more in pairwise(ends))


def _repricing(formulation: Formulation, collectives: CollectiveModel) -> Callable[[int, tuple[Level, ...]], Candidate]:
    """Function that prices candidates of a model on the levels of a block; those of a profile stay."""

    @lru_cache(maxsize=4096)
    def repriced(index: int, levels: tuple[Level, ...]) -> Candidate:
        pricing, classes = formulation.pricing, formulation.classes
        assert pricing is not None
        assert classes is not None
        there = evolve(pricing, cluster=evolve(pricing.cluster, levels=levels), collectives=collectives)
        there.compute_costs.update(pricing.compute_costs)  # What operators compute does not depend on the network.
        return candidate(formulation.candidates[index].name, formulation.sharded[index], classes, there)

    return repriced
