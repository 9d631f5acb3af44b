"""How a plan came about: the plug-ins that took part, and decisions that no search of its problem would try."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from attrs import evolve

from nest.formulate.constraints import allowed_rank_orders, allowed_zero, allowed_zero_degrees
from nest.formulate.instance import Formulation, without_missing_plugins
from nest.formulate.shard import USUAL_MICRO_BATCHES, allowed_degrees, participating, untried
from nest.formulate.target import beyond_target
from nest.hooks.protocols import StrategyContext
from nest.hooks.registry import Registry
from nest.instance import Candidate, Instance, Solution
from nest.spec import PlanDocument, Problem
from nest.spec.problem import ALL_RANKS


def contributors(
    problem: Problem, known: Registry, instance: Instance | None = None, solution: Solution | None = None
) -> dict[str, str]:
    """Distributions of the objects that a plan of `problem` was made with, by name, with their versions.

    These are the strategies that split something in it or that the problem names, its schedule, the models of cost,
    collectives and layer times, the exporter that `search.target` names, the stack, and the importers of its model and
    network. Without a plan, every schedule of the problem took part in saying so.
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
    """What of the distributions, with versions, that a plan was made with is missing here, or in another version."""
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


def outside(
    plan: PlanDocument,
    instance: Instance,
    solution: Solution,
    formulation: Formulation,
    problem: Problem,
    registry: Registry,
) -> tuple[str, ...]:
    """What of a plan no search of its problem without `fixed` tries, and what the target of the problem cannot run.

    `instance` is what the plan was priced on, and `formulation` what that was made of.
    """
    # A search keeps to the target whatever is fixed, and to the lists where nothing is.
    searched = plan.lower_bound is not None
    beyond = [] if searched else beyond_target(plan, registry)
    told = () if searched and problem.fixed is None else _untried(instance, solution, formulation, problem, registry)
    return (*told, *(f"search.target: {sentence}" for sentence in beyond))


def wrong_outside(
    plan: PlanDocument,
    instance: Instance,
    solution: Solution,
    formulation: Formulation,
    problem: Problem,
    registry: Registry,
) -> tuple[str, ...]:
    """Where a plan's `outside` differs from what follows from its decisions, in words."""
    derived = outside(plan, instance, solution, formulation, problem, registry)
    if plan.outside == derived:
        return ()
    return (f"outside says {list(plan.outside or ())}, but {list(derived)} follows from the decisions.",)


def _untried(
    instance: Instance, solution: Solution, formulation: Formulation, problem: Problem, registry: Registry
) -> tuple[str, ...]:
    """Each decision of a plan that no list of its problem allows; lists left out allow what they default to."""
    free = evolve(without_missing_plugins(problem, registry), fixed=None)
    found = list(_listed(solution, free))
    for index in dict.fromkeys(stage.candidate for stage in solution.stages):
        found += _candidate(instance, instance.candidates[index], formulation, free, registry)
    return tuple(dict.fromkeys(found))


def _listed(solution: Solution, free: Problem) -> Iterator[str]:
    """What `training` and `search` list otherwise."""
    yield from _outside_sentences("schedule", solution.schedule, "training.schedule", free.training.schedule)
    yield from _outside_sentences("rank_order", solution.rank_order, "search.rank_order", allowed_rank_orders(free))
    for stage in solution.stages:
        yield from _outside_sentences("zero", stage.zero, "search.zero", allowed_zero(free))
        if free.search.recompute is not None:
            yield from _outside_sentences("recompute", stage.recompute, "search.recompute", free.search.recompute)
    if any(stage.zero for stage in solution.stages):
        # Without ZeRO nothing is sharded, over however many ranks.
        degrees = [ALL_RANKS if each is None else each for each in allowed_zero_degrees(free)]
        degree = ALL_RANKS if solution.zero_degree is None else solution.zero_degree
        yield from _outside_sentences("zero_degree", degree, "search.zero_degree", degrees)


def _candidate(
    instance: Instance, candidate: Candidate, formulation: Formulation, free: Problem, registry: Registry
) -> Iterator[str]:
    """What the search makes no such candidate for."""
    if formulation.classes is None:
        limits = allowed_degrees(free, {*registry.strategies(), *candidate.degrees})
        for name, limit in limits.items():
            degree = candidate.degrees.get(name, 1)
            if not limit.among((degree,)):
                yield from _outside_sentences(name, degree, limit.place, limit.degrees)
        return
    size = candidate.micro_batch or candidate.samples
    yield from _outside_sentences(
        "micro_batch", size, "training.micro_batch", free.training.micro_batch or USUAL_MICRO_BATCHES
    )
    every, searched = registry.strategies(), participating(free, registry.strategies())
    refused = untried(
        formulation.classes.graph,
        {name: each for name, each in every.items() if name in {*searched, *candidate.degrees}},
        allowed_degrees(free, every),
        size,
        candidate.degrees,
        StrategyContext(instance.cluster, free.training),
    )
    unnamed = {name: (1,) for name, degree in candidate.degrees.items() if degree > 1 and name not in searched}
    for name, tried in {**refused, **unnamed}.items():
        degree = candidate.degrees.get(name, 1)
        if name in free.strategies:
            yield from _outside_sentences(name, degree, f"strategies.{name}", tried)
        else:
            shown = ", ".join(map(str, tried))
            yield f"{name} is {degree}, but where strategies does not name {name} the search tries {shown} only"


def _outside_sentences(name: str, value: object, place: str, allowed: Collection[object]) -> Iterator[str]:
    if value not in allowed:
        yield f"{name} is {value}, but {place} allows {', '.join(map(str, allowed))} only"
