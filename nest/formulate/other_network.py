"""A problem as it would be on another network, and what planners are given of it."""

from collections.abc import Callable, Sequence
from functools import partial

from attrs import evolve

from nest.formulate.instance import build_instance
from nest.hooks.planning import PlannerContext, assessed
from nest.hooks.registry import Registry
from nest.instance import Instance, Level, Result
from nest.spec import Problem


def on_network(problem: Problem, instance: Instance, levels: Sequence[Level], known: Registry) -> Instance:
    """`instance` with all that depends on the network priced anew for `levels`; which plans are allowed stays.

    Candidates keep their places; one that the other network does not admit keeps its price.

    Args:
        problem: of the instance, self-contained.
        instance: the problem in numbers.
        levels: the other network, innermost first, with as many devices in all.
        known: offers what the problem names.

    Raises:
        InputError: the problem cannot be used on that network.
    """
    strategies = dict(problem.strategies)
    if problem.model is not None:  # A network of fewer levels may admit degrees that nobody asks for.
        names = dict.fromkeys(name for each in instance.candidates for name in each.degrees)
        strategies = {
            name: tuple(sorted({each.degrees.get(name, 1) for each in instance.candidates})) for name in names
        }
    # What a target and `fixed` leave is in the instance's space, which is kept.
    asked = evolve(
        problem,
        strategies=strategies,
        search=evolve(problem.search, target=None),
        fixed=None,
        constraints=(),
    )
    there = build_instance(asked, known, levels=tuple(levels))
    priced = {each.name: each for each in there.candidates}
    candidates = tuple(priced.get(each.name, each) for each in instance.candidates)
    return evolve(instance, cluster=there.cluster, candidates=candidates)


def planner_context(
    problem: Problem,
    instance: Instance,
    known: Registry,
    search: Callable[[Instance], Result],
    *,
    seed: int,
    evaluations: int,
) -> PlannerContext:
    """What a registered planner may use beside the instance of a problem.

    Args:
        problem: self-contained.
        instance: of the problem.
        known: offers what the problem names.
        search: the exact dynamic program.
        seed: of random numbers.
        evaluations: plans that a planner which tries plans out may price.
    """
    return PlannerContext(
        seed=seed,
        evaluations=evaluations,
        assess=partial(assessed, instance),
        search=search,
        on_network=lambda levels: on_network(problem, instance, levels, known),
    )
