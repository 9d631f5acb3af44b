"""Questions about a plan, each answered by solving or pricing a changed problem.

Belongs here: explanation, alternatives, comparison, kept answers. Does not: many problems (`plugins/nest-studies`).
"""
