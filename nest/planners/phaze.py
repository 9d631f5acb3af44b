"""A planner that does not know the network, as Phaze does not (Wang, Tarnawski et al., ICML 2024)."""

from attrs import evolve

from nest.hooks.planning import PlannerContext, Proposal
from nest.instance import Instance, Level
from nest.planners.shapes import USUAL_RANK_ORDER


class Phaze:
    """The exact dynamic program, for a network on which every pair of devices has the fastest link there is.

    Its plan is the best one for that network, collectives inside blocks included; priced on the real one. Where
    replicas and stages lie makes no difference there, so ranks are laid as frameworks do, where the problem allows it.
    """

    name = "phaze"
    summary = "the dynamic program of a planner that takes every link to be the fastest"

    def plan(self, instance: Instance, context: PlannerContext) -> Proposal:
        """The fastest plan of the flat network."""
        flat = context.on_network((_flat(instance),))
        result = context.search(flat)
        if result.solution is None or result.batch_time is None:
            return Proposal(None, (result.diagnosis or "it finds no plan.",))
        laid = evolve(result.solution, rank_order=USUAL_RANK_ORDER)
        decided = laid if context.assess(laid).fits else result.solution
        return Proposal(decided, (f"it expects {result.batch_time:.4g} s of its network.",))


def _flat(instance: Instance) -> Level:
    """One level of all devices, with the bandwidth and link of the fastest level and the least latency."""
    levels = instance.cluster.levels
    fastest = max(levels, key=lambda level: level.bandwidth)
    latency = min(level.latency for level in levels)
    return evolve(fastest, name="every link the fastest", fanout=instance.cluster.size, latency=latency)
