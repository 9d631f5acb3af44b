"""Plans: pricing of decisions, the plan document, and its check. Nothing here imports a solver."""

from nest.plan.certificate import Certificate, certify, certify_plan
from nest.plan.check import CheckReport, certified, check, check_contender
from nest.plan.document import document, infeasible, solution_of, time_range
from nest.plan.evaluate import PricedPlan, PricedStage, evaluate, schedule_of
from nest.plan.layout import even_chunks, first_devices, replica_size, widest
from nest.plan.legality import chunk_violations

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
    "chunk_violations",
    "document",
    "evaluate",
    "even_chunks",
    "first_devices",
    "infeasible",
    "replica_size",
    "schedule_of",
    "solution_of",
    "time_range",
    "widest",
]
