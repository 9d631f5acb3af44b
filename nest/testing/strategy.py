"""Strategies: what `nest.hooks.protocols.Strategy` promises, tried on small models and clusters."""

from collections.abc import Sequence
from typing import Any

from nest.graph import Block
from nest.hooks.protocols import Strategy
from nest.testing import communication, conservation, structure, sums
from nest.testing.cases import Case, cases
from nest.testing.finding import Finding, Problems, Tally
from nest.testing.samples import SAMPLE_CLUSTERS, SAMPLE_MODELS, SampleCluster, SampleModel

TAKES_PART = "a degree above 1 is offered somewhere"


def check_strategy(
    strategy: Strategy,
    *,
    models: Sequence[SampleModel] = SAMPLE_MODELS,
    clusters: Sequence[SampleCluster] = SAMPLE_CLUSTERS,
) -> tuple[Finding, ...]:
    """Try every degree a strategy offers, alone and on top of strategies that are applied before it.

    Args:
        strategy: as `nest_strategies` returns it. Its attribute `padding`, if it has one, is the share by which the
            work of a rank may exceed an even one (the capacity of experts, say).
        models: to be divided.
        clusters: to be divided over.
    """
    tally = Tally()
    offered = 0
    for case in cases(strategy, models, clusters):
        degrees: list[int] = []
        if tally.run("degrees are whole numbers from 1", case.told, _degrees, strategy, case, degrees):
            offered += _try(tally, strategy, case, [degree for degree in degrees if degree > 1])
    tally.run(TAKES_PART, "the sample models", _takes_part, offered)
    return tally.findings()


def _degrees(strategy: Strategy, case: Case, found: list[int]) -> Problems:
    found += strategy.degrees(case.block, case.context)
    return structure.bad_degrees(found)


def _takes_part(offered: int) -> Problems:
    if not offered:
        yield (
            "no degree above 1 on any sample model and cluster, so that `apply` was not tried; "
            "give check_strategy models and clusters that suit it"
        )


def _try(tally: Tally, strategy: Strategy, case: Case, degrees: Sequence[int]) -> int:
    """Every degree in one case; how many there were."""
    smaller = case.block
    for degree in degrees:
        where = f"{case.told}, degree {degree}"
        made: list[Block] = []
        if not tally.run("it applies", where, _apply, strategy, case, degree, made):
            continue
        tally.run("it does the same every time", where, _again, strategy, case, degree, made[0])
        _examine(tally, strategy, case, where, smaller, made[0])
        smaller = made[0]
    return len(degrees)


def _apply(strategy: Strategy, case: Case, degree: int, made: list[Block]) -> Problems:
    block: Any = strategy.apply(case.block, degree, case.context)
    made.append(block)
    yield from structure.bad_block(case, strategy.name, degree, block)


def _again(strategy: Strategy, case: Case, degree: int, first: Block) -> Problems:
    if strategy.apply(case.block, degree, case.context) != first:
        yield "applied twice to the same block, it made two different ones"


def _examine(tally: Tally, strategy: Strategy, case: Case, where: str, smaller: Block, block: Block) -> None:
    """Every check of one block; the list reads as the contents of the kit."""
    padding = getattr(strategy, "padding", 0.0)
    whole, before, after = case.whole, case.block.graph, block.graph
    tally.run("sizes and amounts are finite and not negative", where, structure.bad_numbers, block)
    tally.run("layers and the tensors between them are kept", where, structure.changed_layers, before, after)
    tally.run("equal layers are treated alike", where, structure.unlike_layers, before, after)
    tally.run("tensors agree wherever they are handled", where, structure.disagreeing_tensors, block)
    tally.run("operators work on what they read, write and hold", where, structure.unmatched_work, whole, block)
    tally.run("no operator is lost", where, conservation.lost_operators, whole, block)
    tally.run("work and activations of all ranks add up", where, conservation.lost_work, whole, block)
    tally.run("`split` says who divides the work", where, conservation.uneven_shares, whole, block, padding)
    tally.run("parameters of all ranks add up", where, conservation.lost_parameters, whole, block)
    tally.run(
        "parameters held in common are declared", where, conservation.unreduced_gradients, case, block, strategy.name
    )
    tally.run("memory of a rank does not grow", where, conservation.growing_memory, case, smaller, block)
    tally.run("collectives have ranks to run on", where, communication.bad_axes, block)
    tally.run("collectives carry what the tensors hold", where, communication.bad_calls, block)
    tally.run("collectives hide under what computes", where, communication.hidden_under_nothing, block)
    tally.run("partial sums are completed", where, sums.partial_sums, whole, block)
    tally.run("partial gradients are added up", where, sums.partial_gradients, whole, block)
    tally.run("gradients go back the way values came", where, sums.unreturned, block)
    tally.run("attention sees all keys", where, sums.unseen_keys, whole, block)
