"""Which of equally fast plans is the answer (PROBLEM.md section 5), and which hardly slower one is simpler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from attrs import evolve

from nest.instance import Instance, Result, Solution
from nest.solve.dp.configurations import Configuration
from nest.solve.search import BestFirst, Incumbent
from nest.spec.constraints import parse
from nest.tolerances import AGREEMENT, TIE

if TYPE_CHECKING:
    from nest.solve.dp.mixed import MixedSearch

CHOICES = ("zero", "recompute")
"""What stages choose."""


Search = Callable[[Instance, tuple[Solution, float]], Result]
"""A search that starts from a plan and its step time, and answers with it where nothing is faster."""


def simplest(instance: Instance, result: Result, search: Search, within: float) -> Result:
    """The result, with a plan that is simpler and hardly slower, where there is one of no more devices and stages.

    Stages that choose alike, and chunks that hold as many blocks as each other, are what frameworks can run; a plan
    whose stages do neither is often as fast as one whose stages do, or nearly so. One that is slower is no optimum any
    more.

    Args:
        instance: the problem.
        result: of its search.
        search: how to search.
        within: share of the step time by which the simpler plan may be slower.
    """
    best, least = result.solution, result.batch_time
    if best is None or least is None or result.status != "optimal" or instance.space.mixed:
        return result
    for narrowed in _narrowed(instance, best):
        simpler = search(narrowed, (best, least * (1 + within)))
        plan = simpler.solution
        time = simpler.batch_time
        if plan is None or time is None or plan == best or _size(instance, plan) > _size(instance, best):
            continue
        if time <= least * (1 + AGREEMENT):
            return evolve(result, solution=plan, batch_time=time)
        runner_up = (best, least) if result.runner_up is None else result.runner_up
        return evolve(result, status="feasible", solution=plan, batch_time=time, lower_bound=least, runner_up=runner_up)
    return result


def _narrowed(instance: Instance, plan: Solution) -> Iterator[Instance]:
    """The instance with simpler plans only, the simplest first; nothing where `plan` is as simple as they are."""
    space = instance.space
    alike = len({(stage.zero, stage.recompute) for stage in plan.stages}) == 1
    runs = [chunk for stage in plan.stages for chunk in stage.chunks or (stage.layers,)]
    held = {sum(set(block) <= set(run) for block in space.blocks) for run in runs}
    uneven = len(held) > 1 and not space.even and space.partition is None
    uniform = tuple(parse(f"uniform({name})") for name in CHOICES)
    constrained = evolve(space, constraints=(*space.constraints, *uniform))
    if uneven and len(space.blocks) % len(plan.stages) == 0:
        yield evolve(instance, space=evolve(constrained, even=True))
    if not alike:
        yield evolve(instance, space=constrained)


def _size(instance: Instance, plan: Solution) -> tuple[int, int]:
    """Devices and stages, by which ties are broken first (PROBLEM.md section 5)."""
    widths = [instance.candidates[stage.candidate].width for stage in plan.stages]
    return plan.replicas * sum(widths), len(plan.stages)


def first_of_ties(
    best: Incumbent, least: float, searcher: MixedSearch, begin: Callable[[Incumbent], BestFirst]
) -> Incumbent:
    """The first by tie-break of the mixed plans that tie with the fastest: fewer devices, then fewer stages.

    The search finds one of the fastest plans of a configuration and a number of stages, whatever devices it uses. Where
    that is as fast as the best plan the configuration is searched again, with the devices among what its stages must
    add up to: first for fewer than the best plan has, until there is none, then for as many. All others are pruned:
    they have no plan as fast, or none that could be ahead.

    Args:
        best: one of them.
        least: step time of the fastest, seconds.
        searcher: has searched all mixed plans.
        begin: begins a search by it with a plan in hand.
    """
    tied = [configuration for value, configuration in searcher.priced if value <= least * (1 + TIE)]

    def among(devices: range) -> Incumbent:
        searcher.narrow(_using(devices, searcher.instance, tied))
        search = begin(best)
        search.limit = least
        search.find_best()
        return search.best or best

    while (fewer := among(range(1, best.tie_break[0]))) is not best:
        best = fewer
    return among(range(best.tie_break[0], best.tie_break[0] + 1))


def _using(devices: range, instance: Instance, configurations: Iterable[Configuration]) -> Iterator[Configuration]:
    """The configurations with plans that use so many devices, and only these plans."""
    for each in configurations:
        narrowest = min(instance.candidates[index].width for index, _ in each.members)
        totals = each.tally.totals or range(narrowest * each.stage_counts[0], each.size + 1)
        totals_left = frozenset(total for total in totals if total * each.replicas in devices)
        if totals_left:
            yield evolve(each, tally=evolve(each.tally, totals=totals_left))
