"""Planners' view of a problem: another network, no memory; and the step from it to a plan."""

from collections.abc import Iterable

from attrs import evolve

from nest.hooks.planning import Assessment, PlannerContext, Proposal
from nest.instance import Instance, Solution
from nest.spec.constraints import Value
from nest.spec.problem import usual_rank_order
from nest.units import LARGEST

Believed = tuple[float, Solution]
"""A planner's cost of a plan, seconds, and the plan."""

MOST_PRICED = 200
"""Plans of a ranking that are priced before a planner gives up finding one that fits."""


def node_level(instance: Instance) -> int:
    """The level that holds the devices of a machine: the innermost of more than one device."""
    return next((index for index, size in enumerate(instance.cluster.capacities) if size > 1), 0)


def flat(instance: Instance, context: PlannerContext) -> Instance:
    """The instance on one level of all devices, with the bandwidth and link of the fastest and the least latency."""
    levels = instance.cluster.levels
    fastest = max(levels, key=lambda level: level.bandwidth)
    latency = min(level.latency for level in levels)
    whole = evolve(fastest, name="every link the fastest", fanout=instance.cluster.size, latency=latency)
    return context.on_network((whole,))


def two_dimensional(instance: Instance, context: PlannerContext) -> Instance:
    """The instance on machines and what joins them: within each of the two dimensions all links are alike.

    Between machines that is the link of the level above theirs, as far away as the devices are.
    """
    levels, node = instance.cluster.levels, node_level(instance)
    if node + 2 >= len(levels):
        return instance if instance.network is None else context.on_network(levels)
    inside = evolve(levels[node], fanout=instance.cluster.capacities[node])
    between = evolve(levels[node + 1], fanout=instance.cluster.size // inside.fanout)
    return context.on_network((inside, between))


def boundless(instance: Instance) -> Instance:
    """The instance on devices whose memory has no end."""
    return evolve(instance, cluster=evolve(instance.cluster, memory=LARGEST, device_memory=LARGEST))


def usual_order(instance: Instance) -> str:
    """The order of ranks of frameworks, where the problem allows it."""
    return usual_rank_order(instance.space.rank_orders)


def usable_devices(instance: Instance) -> int:
    """Devices that constraints on `devices` alone leave."""
    bounds = [each for each in instance.space.constraints if each.names() == {"devices"}]

    def allowed(count: int) -> bool:
        values: dict[str, Value] = {"devices": count}
        return all(each.holds(values) for each in bounds)

    return next((count for count in range(instance.cluster.size, 0, -1) if allowed(count)), instance.cluster.size)


def first_that_fits(context: PlannerContext, ranked: Iterable[Believed], remark: str = "") -> Proposal:
    """The plan that the planner believes to be the fastest, among plans of the problem that fit.

    Where none fits, the one that is short of the least memory. `remark` says what its planner took it to cost, with a
    place for the seconds.
    """
    closest: tuple[float, Solution] | None = None
    fault = "by its own count no way to divide the layers over the devices fits"
    for believed, solution in sorted(ranked, key=lambda each: each[0])[:MOST_PRICED]:
        seen = context.assess(solution)
        if seen.admitted:
            return Proposal(solution, (remark.format(believed),) if remark else ())
        if seen.priced is None:
            fault = seen.faults[0]
        elif closest is None or seen.missing < closest[0]:
            closest = seen.missing, solution
    if closest is not None:
        return Proposal(closest[1], ("no plan it comes to fits into memory; this is the closest.",))
    return Proposal(None, (f"no plan it comes to is one of the problem: {fault}.",))


def fastest_of(context: PlannerContext, solutions: Iterable[Solution]) -> tuple[Solution, Assessment] | None:
    """Of the plans that fit, the one priced to be the fastest; None where none fits."""
    seen = [(solution, context.assess(solution)) for solution in dict.fromkeys(solutions)]
    priced = [(each.priced.batch_time, index) for index, (_, each) in enumerate(seen) if each.priced and each.admitted]
    return seen[min(priced)[1]] if priced else None
