"""Built-in planners to compare with, each citing what it follows."""

from nest.hooks.protocols import Planner
from nest.hooks.spec import hook


@hook
def nest_planners() -> list[Planner]:
    """Rules of thumb, two planners that overlook something, a random search, and two rules for several pools."""
    from nest.planners.manual import Manual
    from nest.planners.mcmc import Mcmc
    from nest.planners.overlooking import Alpa, Phaze
    from nest.planners.pools import Proportional, SlowestDevice

    return [Manual(), Phaze(), Alpa(), Mcmc(), SlowestDevice(), Proportional()]
