"""From a problem as written to the instance solvers see.

Belongs here: parsing of decisions, sharding, prices, memory, targets. Does not: the search.

Throughout, `problem` and `cluster` are as written unless it says otherwise, `registry` (or `known`) offers what they
name, `base` is the folder that relative paths start from (None: the working directory), and an `InputError` names the
place of what cannot be used.
"""
