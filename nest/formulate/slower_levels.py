"""What a plan takes where one level of the network is slower than the problem says."""

from collections.abc import Iterator

from attrs import evolve

from nest.formulate.instance import Formulation
from nest.formulate.price import candidate
from nest.instance import Instance, Level, Solution
from nest.plan import PricedPlan, evaluate
from nest.tolerances import BANDWIDTH_SHORTFALL


def priced_also_slower(
    instance: Instance, formulation: Formulation, solution: Solution
) -> tuple[Solution, PricedPlan, tuple[float, ...]]:
    """A plan, its price, and its `slower_times`; arguments as there."""
    return solution, evaluate(instance, solution), slower_times(instance, formulation, solution)


def slower_times(instance: Instance, formulation: Formulation, solution: Solution) -> tuple[float, ...]:
    """Batch time, seconds, of the plan kept as it is, for each level with `BANDWIDTH_SHORTFALL` less, innermost first.

    All that depends on the network is priced anew: messages, ZeRO, and of a model the collectives inside layers. A
    profile states what layers take, their collectives included.

    Args:
        instance: the problem in numbers.
        formulation: what it was made of.
        solution: a plan of it.
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
    if formulation.pricing is not None and formulation.kinds is not None:
        pricing = evolve(formulation.pricing, cluster=cluster)
        for index in {stage.candidate for stage in solution.stages}:
            block = formulation.sharded[index]
            candidates[index] = candidate(candidates[index].name, block, formulation.kinds, pricing)
    return evolve(instance, cluster=cluster, candidates=tuple(candidates))
