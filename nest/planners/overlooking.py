"""Planners that overlook something, each as the NEST paper compares with it: Phaze the network, Alpa memory."""

from attrs import evolve

from nest.hooks.planning import PlannerContext, Proposal
from nest.instance import Instance, Level, Solution
from nest.planners.shapes import USUAL_RANK_ORDER
from nest.units import LARGEST


class Phaze:
    """Phaze (Wang, Tarnawski et al., ICML 2024): the exact dynamic program, for a network of fastest links only.

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


class Alpa:
    """Alpa (arXiv 2201.12023): the exact dynamic program, for memory without end; what does not fit then is sharded.

    Alpa's passes minimise time alone: the one inside operators takes the cheapest sharding, the one across them the
    cheapest stages (sections 4.2 and 5.2). Where the plan does not fit, ZeRO stages 1, 2 and 3 are tried in turn, for
    all stages alike, and nothing else is changed: its degrees were chosen without memory in view.
    """

    name = "alpa"
    summary = "the dynamic program of a planner that takes memory to have no end, with ZeRO where its plan does not fit"

    def plan(self, instance: Instance, context: PlannerContext) -> Proposal:
        """The fastest plan of endless memory, with the least ZeRO that makes it fit; with the most where none does."""
        boundless = evolve(instance.cluster, memory=LARGEST, device_memory=LARGEST)
        result = context.search(evolve(instance, cluster=boundless))
        if result.solution is None:
            return Proposal(None, (result.diagnosis or "it finds no plan.",))
        decided, seen = result.solution, context.assess(result.solution)
        if seen.fits:
            return Proposal(decided)
        sharded = decided
        for zero in sorted(set(instance.space.zero)):
            tried = _sharded(decided, zero)
            seen = context.assess(tried)
            if tried == decided or seen.priced is None:
                continue
            if seen.fits:
                return Proposal(tried, (f"sharded with ZeRO {zero}, as it did not fit.",))
            sharded = tried
        return Proposal(sharded, ("it does not fit, though sharded as far as the problem allows.",))


def _sharded(solution: Solution, zero: int) -> Solution:
    """The same plan with a ZeRO stage of at least `zero` everywhere."""
    return evolve(solution, stages=tuple(evolve(each, zero=max(zero, each.zero)) for each in solution.stages))
