"""Built-in planners to compare with, each citing what it follows.

Belongs here: rules and planners of papers. Does not: pricing; nest prices what they propose.
"""

from nest.hooks.protocols import Planner
from nest.hooks.spec import hook


@hook
def nest_planners() -> list[Planner]:
    """Rules and recipes, the planners of papers, random searches, and two rules for several pools."""
    from nest_planners.alpa import Alpa, AlpaE
    from nest_planners.galvatron import Galvatron
    from nest_planners.manual import Manual, ManualFirst
    from nest_planners.mcmc import Annealing, Mcmc, RandomSearch
    from nest_planners.nest_paper import NestPaper
    from nest_planners.phaze import Phaze
    from nest_planners.piper import Piper
    from nest_planners.pools import Proportional, SlowestDevice
    from nest_planners.recipe import Recipe

    rules: list[Planner] = [Manual(), ManualFirst(), Recipe()]
    papers: list[Planner] = [Phaze(), Alpa(), AlpaE(), NestPaper(), Piper(), Galvatron()]
    return [*rules, *papers, Mcmc(), Annealing(), RandomSearch(), SlowestDevice(), Proportional()]
