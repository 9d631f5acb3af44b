"""Built-in planners to compare with, each citing what it follows."""

from nest.hooks.protocols import Planner
from nest.hooks.spec import hook


@hook
def nest_planners() -> list[Planner]:
    """Rules and recipes, the planners of papers, random searches, and two rules for several pools."""
    from nest.planners.alpa import Alpa, AlpaE
    from nest.planners.galvatron import Galvatron
    from nest.planners.manual import Manual, ManualFirst
    from nest.planners.mcmc import Annealing, Mcmc, RandomSearch
    from nest.planners.nest_paper import NestPaper
    from nest.planners.phaze import Phaze
    from nest.planners.piper import Piper
    from nest.planners.pools import Proportional, SlowestDevice
    from nest.planners.recipe import Recipe

    rules: list[Planner] = [Manual(), ManualFirst(), Recipe()]
    papers: list[Planner] = [Phaze(), Alpa(), AlpaE(), NestPaper(), Piper(), Galvatron()]
    return [*rules, *papers, Mcmc(), Annealing(), RandomSearch(), SlowestDevice(), Proportional()]
