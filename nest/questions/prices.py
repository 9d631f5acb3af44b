"""What each restriction of a problem costs: the best plan without it."""

from attrs import frozen

from nest.questions.loosening import Loosening, loosenings
from nest.questions.outcome import Outcome, outcome
from nest.questions.solver import Solver
from nest.spec import PlanDocument, Problem


@frozen
class Price:
    """What one restriction costs.

    Attributes:
        place: where it is written, such as `constraints[0]`, `fixed.tp`, `search.zero`.
        written: what it says.
        instead: what stood in its place; empty: nothing.
        outcome: the best plan without it, beside the best plan with it.
    """

    place: str
    written: str
    instead: str
    outcome: Outcome

    @property
    def costs(self) -> bool:
        """Whether a plan without the restriction is faster, or there is one at all."""
        if self.outcome.plan is None:
            return False
        return self.outcome.relative is None or (self.outcome.relative < 0 and not self.outcome.as_fast)

    def to_dict(self) -> dict[str, object]:
        """All of it in plain mappings, lists and numbers."""
        return {
            "place": self.place,
            "written": self.written,
            "instead": self.instead,
            "costs": self.costs,
            **self.outcome.to_dict(),
        }


def restrictions(problem: Problem, solver: Solver) -> tuple[Loosening, ...]:
    """What `price` can be asked of, in the order in which it is told."""
    return loosenings(problem, solver.plugins)


def price(best: PlanDocument, loosening: Loosening, solver: Solver) -> Price:
    """What one restriction costs the best plan of its problem; one solve.

    Without a restriction there are more plans and none less, so that no price is below 0 where both are proved best.

    Args:
        best: the best plan of the problem; may be infeasible.
        loosening: the restriction.
        solver: solves the problem without it.
    """
    found = solver.plan(loosening.problem, f"without {loosening.place}", best)
    return Price(loosening.place, loosening.written, loosening.instead, outcome(best, found, solver.plugins))
