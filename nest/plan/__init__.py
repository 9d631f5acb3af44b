"""Plans: pricing of decisions, the plan document, and its check. Nothing here imports a solver."""

from nest.plan.certificate import Certificate, certify, certify_plan
from nest.plan.check import CheckReport, certified, check, check_contender
from nest.plan.document import document, infeasible, solution_of, time_range
from nest.plan.evaluate import PricedPlan, PricedStage, evaluate, schedule_of

__all__ = [
    "Certificate",
    "CheckReport",
    "PricedPlan",
    "PricedStage",
    "certified",
    "certify",
    "certify_plan",
    "check",
    "check_contender",
    "document",
    "evaluate",
    "infeasible",
    "schedule_of",
    "solution_of",
    "time_range",
]
