"""Questions about a plan: explanation, alternatives, breakpoints, Pareto front, sensitivity, comparison with others.

Belongs here: what asks for changed problems and shows the answers. Does not: how a changed problem is solved
(`nest.whatif`), many problems (`nest_studies`).
"""

from __future__ import annotations

from typing import Any


def nest_commands(app: Any) -> None:
    """`nest simulate`, `nest explain`, `nest frontier` and `nest compare`."""
    from nest_whatif.commands import compare, explain, frontier, simulate

    app.command("simulate")(simulate.simulate)
    app.command("explain")(explain.explain)
    app.command("frontier")(frontier.frontier)
    compare.register(app)
