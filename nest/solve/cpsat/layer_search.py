"""The search where stages are too many to list: graphs with many branches."""

from __future__ import annotations

from attrs import define

from nest.errors import InternalError
from nest.instance import Instance
from nest.solve.cpsat.cases import Case, has_ports
from nest.solve.cpsat.layers import LayerModel
from nest.solve.cpsat.network import peers
from nest.solve.cpsat.placement import TooManyPlacesError
from nest.solve.cpsat.search import Open, Search

INEXACT = "collectives are bounded from below only, in a graph with too many cuts to list"


@define
class LayerSearch(Search):
    """Asks for the stage of each layer."""

    def settles(self, each: Open, effort: float) -> bool:
        """Whether the case is settled: it holds no better plan, or its best is now the one to beat."""
        scaled, limit = self.scaled(each.case, terms(self.instance, each.case))
        try:
            model = LayerModel(self.instance, each.case, scaled, limit, ordered=self.ordered)
        except TooManyPlacesError as reason:
            each.stuck = str(reason)
            return False
        while True:
            solver, status = self.asked(each, model.model, scaled, effort)
            if status == "INFEASIBLE":
                return True
            if status == "MODEL_INVALID":
                return False
            if status == "UNKNOWN":
                return False
            solution = model.solution(solver.value)
            price = self.pricing(solution)
            if any(price.overfull):
                for stage, over in enumerate(price.overfull):
                    if over:
                        model.forbid(solver.value, stage)
                continue
            if scaled is None:
                self.takes(solution, price)
                return self.settles(each, effort)
            least = scaled.seconds(solver.objective_value)
            if status == "OPTIMAL" and price.batch_time < least:
                raise InternalError(
                    f"CP-SAT's model gives a plan at least {least} s, exact pricing {price.batch_time} s. "
                    "This is a bug in nest; please report it with the problem file."
                )
            better = self.takes(solution, price)
            if status == "OPTIMAL" and not better and not exact(self.instance, each.case):
                each.stuck = INEXACT
                return False
            if status == "OPTIMAL" and price.batch_time > least + scaled.error:
                # The model's best is not the case's best: collectives cost more. Ask on below the plan just found.
                return better and self.settles(each, effort)
            finer = better or status != "OPTIMAL"
            return self.settled_by(each, scaled.seconds(solver.best_objective_bound), finer)


def terms(instance: Instance, case: Case) -> int:
    """Numbers that are rounded down on their own in one stage's time."""
    groups = max(len(instance.candidates[each].state) for each in case.candidates)
    # Computation, what it hides, and what goes in pieces, layer by layer.
    pieces = any(group.pieces is not None for each in case.candidates for group in instance.candidates[each].state)
    layers = len(instance.graph.layers) * (1 + instance.space.hiding + 3 * pieces)
    return layers + 2 * len(instance.graph.tensors) + 4 * groups + 2


def exact(instance: Instance, case: Case) -> bool:
    """Whether collectives cost nothing, so that a solution of the model is priced as the model says."""
    if (
        instance.space.exposed == instance.space.often_exposed == 0
        and not instance.space.hiding
        and not has_ports(instance, case)
    ):
        return True
    groups = [each for candidate in case.candidates for each in peers(instance, case, candidate)]
    return all(each.count == 1 and not each.replicates for each in groups)
