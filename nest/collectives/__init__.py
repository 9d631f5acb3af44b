"""Built-in collective models: one a file."""

from nest.hooks.protocols import CollectiveModel
from nest.hooks.spec import hook


@hook
def nest_collective_models() -> list[CollectiveModel]:
    """The alpha-beta model of PROBLEM.md section 1."""
    from nest.collectives.alpha_beta import AlphaBeta

    return [AlphaBeta()]
