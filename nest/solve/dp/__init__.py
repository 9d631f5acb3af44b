"""The exact dynamic program (PROBLEM.md section 6)."""

from nest.solve.dp.solver import solve

__all__ = ["solve"]
