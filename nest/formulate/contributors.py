"""The distributions that took part in a plan, and those of a plan that are not the ones installed."""

from collections.abc import Iterable, Iterator, Mapping

from nest.hooks.registry import Registry
from nest.instance import Instance, Solution
from nest.spec import Problem


def contributors(
    problem: Problem, known: Registry, instance: Instance | None = None, solution: Solution | None = None
) -> dict[str, str]:
    """Distributions of the objects that a plan of `problem` was made with, by name, with their versions.

    These are the strategies that split something in it or that the problem names, its schedule, the models of cost,
    collectives and layer times, the exporter that `search.target` names, the stack, and the importers of its model and
    network.

    Args:
        problem: self-contained.
        known: what is registered.
        instance: of the problem; None: there is no plan.
        solution: the plan; None: there is none, and every schedule of the problem took part in saying so.
    """
    return known.contributing(_objects(problem, known, instance, solution))


def _objects(
    problem: Problem, known: Registry, instance: Instance | None, solution: Solution | None
) -> Iterator[tuple[str, str]]:
    split = {*problem.strategies, *problem.decided}
    schedules: tuple[str, ...] = problem.training.schedule
    if instance is not None and solution is not None:
        used = {stage.candidate for stage in solution.stages}
        degrees = (instance.candidates[index].degrees for index in used)
        split |= {name for each in degrees for name, degree in each.items() if degree > 1}
        schedules = (solution.schedule,)
    yield from (("strategies", name) for name in known.strategies() if name in split)
    yield from (("schedules", name) for name in schedules)
    chosen: list[tuple[str, str | None, Iterable[str]]]
    chosen = [("collective_models", problem.collectives, known.collective_models())]
    if problem.model is not None:
        chosen += [("cost_models", problem.costs, known.cost_models())]
        chosen += [("layer_times", problem.layer_times, known.layer_times())]
    yield from ((kind, name or next(iter(offered), "")) for kind, name, offered in chosen)
    if problem.search.framework is not None:
        yield "exporters", problem.search.framework
    if isinstance(problem.training.stack, str):
        yield "stacks", problem.training.stack


def differences(plugins: Mapping[str, str], known: Registry) -> list[str]:
    """What of the distributions that a plan was made with is missing here, or is there in another version.

    Args:
        plugins: of the plan: versions by distribution.
        known: what is registered.
    """
    here = known.installed()
    found = []
    for name, version in plugins.items():
        told = f"the plan was made with {name} {version}".rstrip()
        if name not in here:
            wanted = f"; install it with `pip install '{name}=={version}'`" if version else ""
            found.append(f"{told}, which is not installed here, or is switched off{wanted}.")
        elif here[name] != version:
            found.append(f"{told}; here it is {here[name] or 'without a version'}.")
    return found
