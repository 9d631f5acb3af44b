"""Questions about a plan, each answered by solving or pricing a changed problem.

Belongs here: a changed problem solved from a known plan, kept answers. Does not: the questions (`nest_whatif`).
"""
