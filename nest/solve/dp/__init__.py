"""The exact dynamic program (PROBLEM.md section 6)."""

from nest.solve.dp.listed import Listed
from nest.solve.dp.solver import feasible, solve

__all__ = ["Listed", "feasible", "solve"]
