"""Traced programs on their way to operator graphs: dimensions followed through views, calls written down as operators.

What `nest capture` traces and what other tools wrote down of a trace become graphs by the same rules. Names of calls
and their arguments are PyTorch's; nothing here loads it.
"""
