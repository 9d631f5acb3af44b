"""Solvers: each reads an `Instance` and answers with a `Result`, and knows no strategy, file or plug-in.

Belongs here: searches, bounds, integer programs. Does not: names, files, prices of operators.
"""
