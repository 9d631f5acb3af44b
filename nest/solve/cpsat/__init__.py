"""CP-SAT (OR-Tools): an independent proof, from the instance alone (PROBLEM.md section 7)."""

from nest.solve.cpsat.search import verify
from nest.solve.cpsat.verification import Price, Verification

__all__ = ["Price", "Verification", "verify"]
