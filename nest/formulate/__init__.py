"""Turns a written problem into the instance that solvers see.

Belongs here: parsing of decisions, sharding, prices, memory, targets. Does not: the search.

Conventions: `problem` and `cluster` are as written unless said otherwise; `registry` (or `known`) offers what they
name; `base` is the folder of relative paths (None: the working directory); an `InputError` names the place of the
fault.
"""
