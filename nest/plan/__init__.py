"""Plans: pricing of decisions, the plan document, and its check. Nothing here imports a solver."""

from nest.plan.check import CheckReport, check
from nest.plan.document import document, infeasible, solution_of
from nest.plan.evaluate import PricedPlan, PricedStage, evaluate

__all__ = [
    "CheckReport",
    "PricedPlan",
    "PricedStage",
    "check",
    "document",
    "evaluate",
    "infeasible",
    "solution_of",
]
