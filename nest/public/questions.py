"""For questions about a plan: a changed problem solved or priced."""

from nest.whatif.engines import engine_called, processes
from nest.whatif.nodes import Nodes
from nest.whatif.outcome import decided_values
from nest.whatif.parameters import Parameter, parameters, with_levels
from nest.whatif.pareto_front import MEMORIES, FrontierPoint, front_of
from nest.whatif.questions import Question, Questions, answers
from nest.whatif.sensitivity import FACTORS, Response
from nest.whatif.shadow_prices import relaxations, shadow_price
from nest.whatif.solver import Solver, at_most, require_held
from nest.whatif.starts import MOST_STARTS, WarmStarts

__all__ = [
    "FACTORS",
    "MEMORIES",
    "MOST_STARTS",
    "FrontierPoint",
    "Nodes",
    "Parameter",
    "Question",
    "Questions",
    "Response",
    "Solver",
    "WarmStarts",
    "answers",
    "at_most",
    "decided_values",
    "engine_called",
    "front_of",
    "parameters",
    "processes",
    "relaxations",
    "require_held",
    "shadow_price",
    "with_levels",
]
