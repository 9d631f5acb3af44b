"""A problem or a plan on another network, or on one with a slower level."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from attrs import evolve

from nest.formulate.instance import Formulation, build_instance
from nest.formulate.price import candidate
from nest.hooks.planning import PlannerContext, assessed
from nest.hooks.registry import Registry
from nest.instance import Instance, Level, Result, Solution
from nest.plan import PricedPlan, evaluate
from nest.spec import Problem
from nest.tolerances import BANDWIDTH_SHORTFALL


def on_network(problem: Problem, instance: Instance, levels: Sequence[Level], known: Registry) -> Instance:
    """`instance` with all that depends on the network priced anew for `levels`; which plans are allowed stays.

    Candidates keep their places; one that the other network, of as many devices, does not admit keeps its price.
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
    """What a registered planner may use beside the instance of a self-contained problem.

    `search` is the exact dynamic program, `seed` that of random numbers, and `evaluations` the number of plans that a
    planner which tries plans out may price.
    """
    return PlannerContext(
        seed=seed,
        evaluations=evaluations,
        assess=partial(assessed, instance),
        search=search,
        on_network=lambda levels: on_network(problem, instance, levels, known),
    )


def priced_with_slower_levels(
    instance: Instance, formulation: Formulation, solution: Solution
) -> tuple[Solution, PricedPlan, tuple[float, ...]]:
    """A plan, its price, and its `slower_times`; arguments as there."""
    return solution, evaluate(instance, solution), slower_times(instance, formulation, solution)


def slower_times(instance: Instance, formulation: Formulation, solution: Solution) -> tuple[float, ...]:
    """Step time, seconds, of the plan kept as it is, for each level with `BANDWIDTH_SHORTFALL` less, innermost first.

    All that depends on the network is priced anew: messages, ZeRO, and of a model the collectives inside layers. A
    profile states what layers take, their collectives included.
    """
    return tuple(
        evaluate(_repriced(instance, formulation, levels, solution), solution).batch_time
        for levels in _slower(instance.cluster.levels)
    )


def _slower(levels: tuple[Level, ...]) -> Iterator[tuple[Level, ...]]:
    """The network with each level slower in turn; latencies and the seconds of calls and steps stay."""
    left = 1 - BANDWIDTH_SHORTFALL
    for index, level in enumerate(levels):
        lines = tuple(evolve(line, bandwidth=line.bandwidth * left) for line in level.lines)
        slower = evolve(level, bandwidth=level.bandwidth * left, lines=lines)
        yield (*levels[:index], slower, *levels[index + 1 :])


def _repriced(instance: Instance, formulation: Formulation, levels: tuple[Level, ...], solution: Solution) -> Instance:
    """The instance on another network; only the candidates that the plan uses are priced anew."""
    cluster, candidates = evolve(instance.cluster, levels=levels), list(instance.candidates)
    if formulation.pricing is not None and formulation.classes is not None:
        pricing = evolve(formulation.pricing, cluster=cluster)
        for index in {stage.candidate for stage in solution.stages}:
            block = formulation.sharded[index]
            candidates[index] = candidate(candidates[index].name, block, formulation.classes, pricing)
    return evolve(instance, cluster=cluster, candidates=tuple(candidates))
