"""The second solver, CP-SAT (OR-Tools): an independent proof, from the instance alone (PROBLEM.md section 7).

Belongs here: models and bounds of cases, placements, operators in a layer. Does not: anything of the dynamic program.
"""

from nest_cpsat.search import verify
from nest_cpsat.verification import Price, Verification

__all__ = ["Price", "Verification", "verify"]
