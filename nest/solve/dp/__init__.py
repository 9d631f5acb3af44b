"""Exact dynamic program (PROBLEM.md section 6); docs/explanation/proofs.md proves that no step loses the best plan."""

from nest.solve.dp.configurations import PlanSignature
from nest.solve.dp.downsets import TooManyCuts
from nest.solve.dp.solver import candidate_floors, feasible, first_plan, solve
from nest.solve.dp.tables import SearchCache

__all__ = ["PlanSignature", "SearchCache", "TooManyCuts", "candidate_floors", "feasible", "first_plan", "solve"]
