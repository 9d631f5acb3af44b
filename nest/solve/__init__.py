"""Solvers: each reads an `Instance` and answers with a `Result`, and knows no strategy, file or plug-in."""
