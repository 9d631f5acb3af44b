"""The levels of a plan's cluster in numbers, for exporters."""

from math import prod

from nest.catalogue import network_levels, scale_up_levels
from nest.hooks.placements import cluster_spec, network_of
from nest.instance import Level
from nest.instance.pairs import Pairs
from nest.network import LinkGraph, pairs, reduce
from nest.spec import PlanDocument


def plan_levels(plan: PlanDocument) -> tuple[Level, ...]:
    """The levels that `plan` was priced on, innermost first, at the bandwidths that messages reach.

    Raises:
        InputError: nobody knows the cluster that the plan's problem names.
    """
    found = network_of(cluster_spec(plan))
    if isinstance(found, (LinkGraph, Pairs)):
        return reduce(pairs(found) if isinstance(found, LinkGraph) else found).best.levels
    return network_levels(found) if isinstance(found, tuple) else found.levels


def domain_of(plan: PlanDocument) -> int:
    """Devices of a group that the scale-up network joins.

    Raises:
        InputError: nobody knows the cluster that the plan's problem names.
    """
    levels = plan_levels(plan)
    return prod(level.fanout for level in levels[: scale_up_levels(levels)])
