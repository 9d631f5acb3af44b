"""Context of planners: the exact search, assessed plans, and the instance on another network."""

from collections.abc import Callable, Sequence
from functools import partial

from attrs import evolve

from nest.hooks.planning import PlannerContext, assessed
from nest.hooks.registry import Registry
from nest.instance import Instance, Level, Result
from nest.public.changes import build_instance
from nest.public.planning import Wanted
from nest.spec import Problem


def on_network(problem: Problem, instance: Instance, levels: Sequence[Level], known: Registry) -> Instance:
    """Reprice an instance for `levels`; the allowed plans stay.

    Candidates keep their places; one that the other network of equal size does not admit keeps its price.
    """
    strategies = dict(problem.strategies)
    if problem.model is not None:  # A network of fewer levels may admit degrees that nobody asks for.
        names = dict.fromkeys(name for each in instance.candidates for name in each.degrees)
        strategies = {
            name: tuple(sorted({each.degrees.get(name, 1) for each in instance.candidates})) for name in names
        }
    # What a target and `fixed` leave is in the instance's space, which is kept.
    problem_there = evolve(
        problem, strategies=strategies, search=evolve(problem.search, target=None), fixed=None, constraints=()
    )
    there = build_instance(problem_there, known, Wanted(levels=tuple(levels)))
    priced = {each.name: each for each in there.candidates}
    candidates = tuple(priced.get(each.name, each) for each in instance.candidates)
    return evolve(instance, cluster=there.cluster, candidates=candidates, collectives=there.collectives, network=None)


def planner_context(
    problem: Problem,
    instance: Instance,
    known: Registry,
    search: Callable[[Instance], Result],
    *,
    seed: int,
    evaluations: int,
) -> PlannerContext:
    """Context of a registered planner for the instance of a self-contained problem.

    `search` is the exact dynamic program, `seed` the random numbers', and `evaluations` the number of plans that a
    planner may price.
    """
    return PlannerContext(
        seed=seed,
        evaluations=evaluations,
        assess=partial(assessed, instance),
        search=search,
        on_network=lambda levels: on_network(problem, instance, levels, known),
    )
