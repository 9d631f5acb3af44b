"""Plans: pricing of decisions, the plan document, and its check. Nothing here imports a solver.

Belongs here: time, memory and legality of a finished plan. Does not: results of a solver.
"""
