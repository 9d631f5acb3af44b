"""Questions about a plan, each answered by solving or pricing its problem with something else in it.

Belongs here: explanation, alternatives, comparison, kept answers. Does not: many problems (`plugins/nest-studies`).
"""
