"""Built-in planners to compare with: one a file, each citing what it follows."""

from nest.hooks.protocols import Planner
from nest.hooks.spec import hook


@hook
def nest_planners() -> list[Planner]:
    """Rules of thumb, two planners that overlook something, and a random search."""
    from nest.planners.alpa import Alpa
    from nest.planners.manual import Manual
    from nest.planners.mcmc import Mcmc
    from nest.planners.phaze import Phaze

    return [Manual(), Phaze(), Alpa(), Mcmc()]
