"""What is drawn: a plan whose numbers hold, with what its file does not carry found once more."""

from collections.abc import Mapping
from typing import Any

from attrs import evolve, frozen

from nest.documents import plan_summary
from nest.formulate.fixed_plan import decided_formulation
from nest.formulate.instance import Formulation
from nest.formulate.problem import carried_problem
from nest.hooks.registry import Registry
from nest.instance import Instance, Solution
from nest.plan import PricedPlan, evaluate
from nest.plan.document import solution_of
from nest.spec import PlanDocument, Problem
from nest.whatif.solver import require_held

NOT_REPORTED_ON = "so it is not reported on"
"""What follows where a plan does not hold."""


@frozen
class Subject:
    """A feasible plan, and what follows from it.

    Attributes:
        plan: as read.
        problem: the plan's, self-contained.
        instance: its problem in numbers.
        formulation: what that was made of.
        solution: its decisions.
        priced: every number of it.
        known: registered exporters and the like.
    """

    plan: PlanDocument
    problem: Problem
    instance: Instance
    formulation: Formulation
    solution: Solution
    priced: PricedPlan
    known: Registry

    @property
    def batch_time(self) -> float:
        """Seconds per optimizer step."""
        return self.priced.batch_time

    @property
    def summary(self) -> Mapping[str, Any]:
        """Derived figures."""
        return self.plan.summary


def subject(read: PlanDocument, known: Registry) -> Subject:
    """The subject of a feasible plan; what its file does not sum up, as files of older versions may not, is worked out.

    Args:
        read: the plan.
        known: registered exporters and the like.

    Raises:
        InputError: the plan's problem cannot be used, or its numbers do not hold.
    """
    require_held(read, read, known, NOT_REPORTED_ON)
    problem = carried_problem(read, known)
    instance, formulation = decided_formulation(problem, read, known)
    solution = solution_of(instance, read)
    priced = evaluate(instance, solution)
    figures = plan_summary(instance, solution, priced, problem, known, formulation)
    whole = evolve(read, summary={**figures, **read.summary})
    return Subject(whole, problem, instance, formulation, solution, priced, known)
