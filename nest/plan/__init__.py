"""Plans: pricing of decisions, the plan document, and its check. Nothing here imports a solver."""

from nest.plan.check import CheckReport, check, check_runner_up
from nest.plan.document import document, infeasible, solution_of
from nest.plan.evaluate import PricedPlan, PricedStage, evaluate

__all__ = [
    "CheckReport",
    "PricedPlan",
    "PricedStage",
    "check",
    "check_runner_up",
    "document",
    "evaluate",
    "infeasible",
    "solution_of",
]
