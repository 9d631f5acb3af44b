"""Checks of strategies (`nest.hooks.protocols.Strategy`) on small models and clusters.

The blocks a strategy is tried on: sample models on sample clusters, whole and under earlier strategies.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from nest.graph import Block
from nest.hooks.protocols import Strategy, StrategyContext
from nest.hooks.registry import registry
from nest.public.checks import DISTRIBUTION
from nest_testing import communication, conservation
from nest_testing.conservation import Case
from nest_testing.finding import Finding, Problems, Tally
from nest_testing.samples import SAMPLE_CLUSTERS, SAMPLE_MODELS, SAMPLES, SampleCluster, SampleModel, loaded

TAKES_PART = "a degree above 1 is offered somewhere"


def check_strategy(
    strategy: Strategy,
    *,
    models: Sequence[SampleModel] = SAMPLE_MODELS,
    clusters: Sequence[SampleCluster] = SAMPLE_CLUSTERS,
) -> tuple[Finding, ...]:
    """Try every degree a strategy offers, alone and after earlier strategies.

    Args:
        strategy: from `nest_strategies`. Its attribute `padding`, if any, is the share by which the work of a rank may
            exceed an even one (for example the capacity of experts).
        models: to be divided.
        clusters: to be divided over.
    """
    tally = Tally()
    offered = 0
    for case in cases(strategy, models, clusters):
        degrees: list[int] = []
        with tally.untouched(case.name, case.block, case.context):
            if tally.run("degrees are whole numbers from 1", case.name, _degrees, strategy, case, degrees):
                offered += _try(tally, strategy, case, [degree for degree in degrees if degree > 1])
    tally.run(TAKES_PART, "the sample models", _takes_part, offered)
    return tally.findings()


def _degrees(strategy: Strategy, case: Case, degrees: list[int]) -> Problems:
    degrees += strategy.degrees(case.block, case.context)
    return conservation.bad_degrees(degrees)


def _takes_part(offered: int) -> Problems:
    if not offered:
        yield (
            "no degree above 1 on any sample model and cluster, so that `apply` was not tried; "
            "give check_strategy models and clusters that suit it"
        )


def _try(tally: Tally, strategy: Strategy, case: Case, degrees: Sequence[int]) -> int:
    """Try every degree in one case; return their number."""
    smaller = case.block
    for degree in degrees:
        where = f"{case.name}, degree {degree}"
        made: list[Block] = []
        if not tally.run("it applies", where, _apply, strategy, case, degree, made):
            continue
        again = partial(strategy.apply, case.block, degree, case.context)
        tally.steady("it does the same every time", where, again)
        _examine(tally, strategy, case, where, smaller, made[0])
        smaller = made[0]
    return len(degrees)


def _apply(strategy: Strategy, case: Case, degree: int, made: list[Block]) -> Problems:
    block = strategy.apply(case.block, degree, case.context)
    made.append(block)
    yield from conservation.bad_block(case, strategy.name, degree, block)


def _examine(tally: Tally, strategy: Strategy, case: Case, where: str, smaller: Block, block: Block) -> None:
    """Run every check of one block; the list reads as the contents of the kit."""
    padding = getattr(strategy, "padding", 0.0)
    whole, before, after = case.whole, case.block.graph, block.graph
    tally.run("sizes and amounts are finite and not negative", where, conservation.bad_numbers, after)
    tally.run("layers and the tensors between them are kept", where, conservation.changed_layers, before, after)
    if group := getattr(strategy, "within", ""):
        tally.run("nothing changes outside the regions", where, conservation.changed_outside, case, block, group)
    tally.run("equal layers are treated alike", where, conservation.unlike_layers, before, after)
    tally.run("tensors agree wherever they are handled", where, conservation.disagreeing_tensors, block)
    tally.run("operators work on what they read, write and hold", where, conservation.unmatched_work, whole, block)
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
    tally.run("partial sums are completed", where, communication.partial_sums, whole, block)
    tally.run("partial gradients are added up", where, communication.partial_gradients, whole, block)
    tally.run("gradients go back the way values came", where, communication.unreturned, block)
    tally.run("attention sees all keys", where, communication.unseen_keys, whole, block)


MOST_BELOW = 2
"""Most strategies before the one under test: interactions of more than two factors are rare (Kuhn, Wallace and Gallo,
IEEE TSE 30(6), 2004), and cases multiply."""


def cases(strategy: Strategy, models: Sequence[SampleModel], clusters: Sequence[SampleCluster]) -> Iterator[Case]:
    """Yield every sample model on every sample cluster: whole, and under earlier strategies."""
    earlier = applied_before(strategy, registry().strategies())
    for model in models:
        graph = loaded(model)
        whole = Block(graph.with_samples(SAMPLES), SAMPLES)
        for sample in clusters:
            context = StrategyContext(sample.cluster, model.training)
            for block in _below(whole, earlier, context, MOST_BELOW):
                under = ", ".join(f"{name} {degree}" for name, degree in block.degrees if degree > 1)
                name = f"{model.name}, {sample.name}" + (f", {under}" if under else "")
                yield Case(name, whole, block, context)


def applied_before(strategy: Strategy, known: Mapping[str, Strategy]) -> list[Strategy]:
    """Return the strategies before `strategy` in a search: built-in ones, and those its `after` names.

    Strategies used only by name are left out unless `after` names them.
    """
    earlier: list[Strategy] = []
    behind = {strategy.name}
    for name, other in known.items():
        if name == strategy.name:
            break  # `known` is in the order in which strategies apply.
        if behind & set(other.after):
            behind.add(name)
            continue
        built_in = registry().origin("strategies", name)[0] == DISTRIBUTION
        if name in strategy.after or (built_in and getattr(other, "by_default", True)):
            earlier.append(other)
    return earlier


def _below(block: Block, earlier: Sequence[Strategy], context: StrategyContext, most: int) -> Iterator[Block]:
    """Yield `block` under at most `most` of the `earlier` strategies, each at smallest and largest degree above 1."""
    if not earlier:
        if context.cluster.admits(block.width):
            yield block
        return
    first, *rest = earlier
    yield from _below(block.applied(first.name, 1, block.graph), rest, context, most)
    higher = [degree for degree in first.degrees(block, context) if degree > 1] if most else []
    for degree in sorted({min(higher), max(higher)}) if higher else ():
        yield from _below(first.apply(block, degree, context), rest, context, most - 1)
