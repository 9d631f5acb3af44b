"""Built-in collective models: one a file.

Belongs here: times of collectives. Does not: which collectives a plan runs.
"""

from nest.hooks.protocols import CollectiveModel
from nest.hooks.spec import hook


@hook
def nest_collective_models() -> list[CollectiveModel]:
    """Return the alpha-beta model of PROBLEM.md section 1."""
    from nest.collectives.alpha_beta import AlphaBeta

    return [AlphaBeta()]
