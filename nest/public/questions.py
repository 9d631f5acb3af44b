"""For questions about a plan: a changed problem solved or priced; those of the package `nest_whatif`."""

from nest.public.changes import (
    MOST_STARTS,
    Nodes,
    Parameter,
    Solver,
    WarmStarts,
    at_most,
    engine_called,
    parameters,
    processes,
    require_held,
    with_levels,
)
from nest_whatif.outcome import decided_values
from nest_whatif.pareto_front import MEMORIES, FrontierPoint, front_of
from nest_whatif.questions import Question, Questions, answers
from nest_whatif.sensitivity import FACTORS, Response
from nest_whatif.shadow_prices import relaxations, shadow_price

__all__ = [
    "FACTORS", "MEMORIES", "MOST_STARTS", "FrontierPoint", "Nodes", "Parameter", "Question", "Questions",
    "Response", "Solver", "WarmStarts", "answers", "at_most", "decided_values", "engine_called", "front_of",
    "parameters", "processes", "relaxations", "require_held", "shadow_price", "with_levels",
]  # fmt: skip
