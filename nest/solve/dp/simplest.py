"""Among plans as fast, one whose stages choose alike and hold as many layers as each other."""

from collections.abc import Callable, Iterator

from attrs import evolve

from nest.instance import Instance, Result, Solution
from nest.spec.constraints import parse
from nest.tolerances import AGREEMENT

CHOICES = ("zero", "recompute")
"""What stages choose."""


Search = Callable[[Instance, tuple[Solution, float]], Result]
"""A search that is told of a plan and its batch time, and answers with it where nothing is faster."""


def simplest(instance: Instance, result: Result, search: Search, within: float) -> Result:
    """The result, with a plan that is simpler and hardly slower, where there is one of no more devices and stages.

    Stages that choose alike, and that hold as many layers as each other, are what frameworks can run; a plan whose
    stages do neither is often as fast as one whose stages do, or nearly so. One that is slower is no optimum any more.

    Args:
        instance: the problem.
        result: of its search.
        search: how to search.
        within: share of the batch time by which the simpler plan may be slower.
    """
    best, least = result.solution, result.batch_time
    if best is None or least is None or result.status != "optimal" or instance.space.mixed:
        return result
    for narrowed in _narrowed(instance, best):
        found = search(narrowed, (best, least * (1 + within)))
        plan = found.solution
        time = found.batch_time
        if plan is None or time is None or plan == best or _size(instance, plan) > _size(instance, best):
            continue
        if time <= least * (1 + AGREEMENT):
            return evolve(result, solution=plan, batch_time=time)
        others = (best, least) if result.runner_up is None else result.runner_up
        return evolve(result, status="feasible", solution=plan, batch_time=time, lower_bound=least, runner_up=others)
    return result


def _narrowed(instance: Instance, plan: Solution) -> Iterator[Instance]:
    """The instance with simpler plans only, the simplest first; nothing where `plan` is as simple as they are."""
    space = instance.space
    alike = len({(stage.zero, stage.recompute) for stage in plan.stages}) == 1
    sizes = [len(stage.layers) for stage in plan.stages]
    # With the embedding and the head, an end may hold two layers more.
    uneven = bool(space.blocks) and max(sizes) - min(sizes) > 2 and not space.even and space.partition is None
    uniform = tuple(parse(f"uniform({name})") for name in CHOICES)
    constrained = evolve(space, constraints=(*space.constraints, *uniform))
    if uneven and len(space.blocks) % len(sizes) == 0:
        yield evolve(instance, space=evolve(constrained, even=True))
    if not alike:
        yield evolve(instance, space=constrained)


def _size(instance: Instance, plan: Solution) -> tuple[int, int]:
    """Devices and stages, by which ties are broken first (PROBLEM.md section 5)."""
    widths = [instance.candidates[stage.candidate].width for stage in plan.stages]
    return plan.replicas * sum(widths), len(plan.stages)
