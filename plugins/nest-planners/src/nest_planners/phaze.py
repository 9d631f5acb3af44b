"""Phaze (Wang, Tarnawski et al., ICML 2024, PMLR 235): the network is overlooked."""

from attrs import evolve

from nest.hooks.planning import PlannerContext, Proposal
from nest.instance import Instance
from nest_planners.views import fastest_of, flat


class Phaze:
    """The exact dynamic program, for a network of fastest links only.

    Its plan is the best one for that network, collectives inside blocks included; priced on the real one. Where
    replicas and stages lie makes no difference there, so both orders of ranks are its plan, and the faster counts.
    """

    name = "phaze"
    summary = "the dynamic program of a planner that takes every link to be the fastest, in the better order of ranks"

    def plan(self, instance: Instance, context: PlannerContext) -> Proposal:
        """The fastest plan of the flat network."""
        result = context.search(flat(instance, context))
        if result.solution is None or result.batch_time is None:
            return Proposal(None, (result.diagnosis or "it finds no plan.",))
        orders = (result.solution.rank_order, *instance.space.rank_orders)
        found = fastest_of(context, (evolve(result.solution, rank_order=order) for order in orders))
        remark = f"it predicts {result.batch_time:.4g} s with its model of the network."
        return Proposal(result.solution if found is None else found[0], (remark,), result.lower_bound)
