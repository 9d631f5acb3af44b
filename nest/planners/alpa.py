"""A planner that does not know memory, with ZeRO afterwards: Alpa (arXiv 2201.12023), as the NEST paper has it."""

from attrs import evolve

from nest.hooks.planning import PlannerContext, Proposal
from nest.instance import Instance, Solution
from nest.units import LARGEST


class Alpa:
    """The exact dynamic program, for devices whose memory has no end; what does not fit then is sharded.

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
