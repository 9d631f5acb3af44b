"""From a graph and registered strategies to blocks: every combination of degrees and micro-batch sizes."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from nest.errors import InputError
from nest.formulate.choices import Allowed
from nest.graph import Block, OperatorGraph
from nest.hooks.protocols import Strategy, StrategyContext


def compose(
    graph: OperatorGraph,
    strategies: Mapping[str, Strategy],
    allowed: Mapping[str, Allowed],
    micro_batches: Sequence[int],
    context: StrategyContext,
    watch: Callable[[], None] = lambda: None,
) -> tuple[Block, ...]:
    """Every block the strategies make of `graph`, in the order of micro-batch sizes, then of degrees.

    Args:
        graph: for one sample.
        strategies: in the order in which they apply.
        allowed: restrictions by strategy; a strategy left out may take each of its degrees.
        micro_batches: samples per micro-batch.
        context: cluster and training.
        watch: called before each block; may raise what ends it.

    Raises: InputError: a restriction leaves no degree, or no block can be placed; the text names what
        excludes them.
    """
    refused: dict[str, set[int]] = {}
    starts = [Block(graph.with_samples(samples), samples) for samples in micro_batches]
    idle = {name for name in allowed if name in strategies and _idle(strategies[name], starts, context)}
    wanted = {name: limit for name, limit in allowed.items() if name not in idle}
    blocks = []
    for start in starts:
        for block in _combinations(start, list(strategies.values()), wanted, context, refused):
            watch()
            blocks.append(block)
    placed = tuple(block for block in blocks if context.cluster.admits(block.width))
    if placed:
        return placed
    if refused and not blocks:
        name = next(name for name in strategies if name in refused)
        possible = ", ".join(str(degree) for degree in sorted(refused[name]))
        sizes = " or ".join(str(samples) for samples in micro_batches)
        raise InputError(
            f"{allowed[name].told()}, but with this model, this cluster and micro-batches of {sizes}, "
            f"{name} can be {possible} only: no combination of strategies is left."
        )
    widths = ", ".join(str(width) for width in sorted({block.width for block in blocks}))
    groups = ", ".join(str(capacity) for capacity in context.cluster.capacities)
    raise InputError(
        f"strategies: every combination makes blocks that cannot be aligned with the cluster (widths "
        f"{widths} on groups of {groups} devices); allow other degrees."
    )


def untried(
    graph: OperatorGraph,
    strategies: Mapping[str, Strategy],
    allowed: Mapping[str, Allowed],
    micro_batch: int,
    degrees: Mapping[str, int],
    context: StrategyContext,
) -> dict[str, tuple[int, ...]]:
    """The strategies that `compose` gives other degrees than a block has, each with those it tries.

    Args:
        graph: for one sample.
        strategies: in the order in which they apply.
        allowed: restrictions by strategy.
        micro_batch: samples of the block.
        degrees: of the block, by strategy; 1 where left out.
        context: cluster and training.
    """
    found: dict[str, tuple[int, ...]] = {}
    start = block = Block(graph.with_samples(micro_batch), micro_batch)
    for name, strategy in strategies.items():
        degree = degrees.get(name, 1)
        limit = None if _idle(strategy, [start], context) else allowed.get(name)
        chosen = _chosen(strategy, limit, block, context)[0]
        if degree not in chosen:
            found[name] = chosen
        block = strategy.apply(block, degree, context) if degree > 1 else _unchanged(block, strategy)
    return found


def _idle(strategy: Strategy, starts: Sequence[Block], context: StrategyContext) -> bool:
    """Whether a strategy that follows another finds nothing to do in the whole model, so that no restriction counts.

    Where it has something to do and only the degrees of others leave it nothing, the restriction excludes these.
    """
    return hasattr(strategy, "follows") and not any({*strategy.degrees(start, context)} - {1} for start in starts)


def _combinations(
    block: Block,
    strategies: Sequence[Strategy],
    allowed: Mapping[str, Allowed],
    context: StrategyContext,
    refused: dict[str, set[int]],
) -> Iterator[Block]:
    """`block` under every allowed combination; notes in `refused` the degrees a restriction left unused."""
    if not strategies:
        yield block
        return
    strategy, *rest = strategies
    chosen, possible = _chosen(strategy, allowed.get(strategy.name), block, context)
    if not chosen:
        refused.setdefault(strategy.name, set()).update(possible)
    for degree in chosen:
        changed = strategy.apply(block, degree, context) if degree > 1 else _unchanged(block, strategy)
        yield from _combinations(changed, rest, allowed, context, refused)


def _chosen(
    strategy: Strategy, limit: Allowed | None, block: Block, context: StrategyContext
) -> tuple[tuple[int, ...], list[int]]:
    """The degrees to try, and all that are possible, ascending."""
    possible = sorted({1, *strategy.degrees(block, context)})
    return limit.among(possible) if limit is not None else _searched(strategy, possible, block, context), possible


def _searched(strategy: Strategy, possible: Sequence[int], block: Block, context: StrategyContext) -> tuple[int, ...]:
    """The degrees of a strategy of which nothing is said: all, or those it thinks worth a search."""
    if not hasattr(strategy, "searched"):
        return tuple(possible)
    worth = {1, *strategy.searched(block, context)}
    return tuple(degree for degree in possible if degree in worth)


def _unchanged(block: Block, strategy: Strategy) -> Block:
    """The block with `strategy` recorded as taking no part."""
    return block.applied(strategy.name, 1, block.graph)
