"""CP-SAT (OR-Tools): an independent proof, from the instance alone (PROBLEM.md section 7)."""

from nest.solve.cpsat.verify import Price, Verification, verify

__all__ = ["Price", "Verification", "verify"]
