"""The blocks a strategy is tried on: sample models on sample clusters, whole and under strategies applied before it."""

from collections.abc import Iterator, Mapping, Sequence

from attrs import frozen

from nest.graph import Block
from nest.hooks.manager import DISTRIBUTION
from nest.hooks.protocols import Strategy, StrategyContext
from nest.hooks.registry import registry
from nest.testing.samples import SAMPLES, SampleCluster, SampleModel, loaded

MOST_BELOW = 2
"""Strategies that take part before the one under test, at most: interactions of more than two factors are rare
(Kuhn, Wallace and Gallo, IEEE TSE 30(6), 2004), and cases multiply."""


@frozen
class Case:
    """A block to apply a strategy to.

    Attributes:
        told: model, cluster and degrees, for people.
        whole: the block before any strategy.
        block: the block as strategies before this one left it.
        context: cluster and training.
    """

    told: str
    whole: Block
    block: Block
    context: StrategyContext


def cases(strategy: Strategy, models: Sequence[SampleModel], clusters: Sequence[SampleCluster]) -> Iterator[Case]:
    """Every sample model on every sample cluster: whole, and under other strategies that are applied before."""
    earlier = applied_before(strategy, registry().strategies())
    for model in models:
        graph = loaded(model)
        whole = Block(graph.with_samples(SAMPLES), SAMPLES)
        for sample in clusters:
            context = StrategyContext(sample.cluster, model.training)
            for block in _below(whole, earlier, context, MOST_BELOW):
                under = ", ".join(f"{name} {degree}" for name, degree in block.degrees if degree > 1)
                told = f"{model.name}, {sample.name}" + (f", {under}" if under else "")
                yield Case(told, whole, block, context)


def applied_before(strategy: Strategy, known: Mapping[str, Strategy]) -> list[Strategy]:
    """Strategies that come before `strategy` in a search: built-in ones, and those its `after` names.

    Those that take part only where they are named are left out unless `after` names them.
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
    """`block` under at most `most` of the `earlier` strategies, each at its smallest and largest degree above 1."""
    if not earlier:
        if context.cluster.admits(block.width):
            yield block
        return
    first, *rest = earlier
    yield from _below(block.applied(first.name, 1, block.graph), rest, context, most)
    higher = [degree for degree in first.degrees(block, context) if degree > 1] if most else []
    for degree in sorted({min(higher), max(higher)}) if higher else ():
        yield from _below(first.apply(block, degree, context), rest, context, most - 1)
