"""What a strategy leaves on the ranks adds up to the whole: work, parameters, activations; and memory does not grow.

Amounts are compared per sample of the micro-batch, over all ranks of a block: a block may hold several copies of a part
of the model, each with samples of its own (`Block.samples`).
"""

from collections.abc import Callable, Iterator
from math import log, prod

from attrs import frozen

from nest.catalogue import optimizer, precision
from nest.graph import Axis, Block, Operator, Parameter, Shape, axis_size
from nest.graph.sharded_graph import COPIES
from nest.hooks.protocols import StrategyContext
from nest.spec import Training
from nest.tolerances import AGREEMENT

AMOUNTS: dict[str, Callable[[Operator], float]] = {
    "FLOP": lambda operator: operator.flops,
    "model FLOP": lambda operator: operator.model_flops,
    "bytes written": lambda operator: operator.bytes_written,
    "bytes read": lambda operator: operator.bytes_read,
}
"""What all ranks together must have at least as much of as the whole."""

WORK = ("FLOP", "model FLOP")
"""Those of them of which a rank does the share that `Operator.split` says."""


@frozen
class Case:
    """A block to apply a strategy to.

    Attributes:
        name: model, cluster and degrees, for people.
        whole: the block before any strategy.
        block: the block as strategies before this one left it.
        context: cluster and training.
    """

    name: str
    whole: Block
    block: Block
    context: StrategyContext


def computing(block: Block) -> dict[str, Operator]:
    """The operators that compute, by name."""
    return {operator.name: operator for operator in block.graph.operators if operator.collective is None}


def pairs(whole: Block, block: Block) -> Iterator[tuple[Operator, Operator]]:
    """Each operator of the whole that is still there, and what became of it."""
    left = computing(block)
    return ((operator, left[name]) for name, operator in computing(whole).items() if name in left)


def lost_operators(whole: Block, block: Block) -> Iterator[str]:
    """Operators whose work nothing does any more: they are gone, and nothing that computes came in their place."""
    before, left = computing(whole), computing(block)
    replaced = {operator.layer for name, operator in left.items() if name not in before}
    for name, operator in before.items():
        if name not in left and operator.layer not in replaced:
            yield f"operator {name!r} is gone and nothing in its layer was put in its place"


def lost_work(whole: Block, block: Block) -> Iterator[str]:
    """Amounts of which all ranks together have less than the whole."""
    ranks = block.width * whole.samples / block.samples
    for before, after in pairs(whole, block):
        for unit, amount in AMOUNTS.items():
            if amount(after) * ranks < amount(before) * (1 - AGREEMENT):
                yield (
                    f"{unit} of operator {before.name!r} are {amount(before):g} unsplit, but {amount(after):g} on each "
                    f"of {ranks:g} ranks: {amount(after) * ranks:g} together"
                )


def uneven_shares(whole: Block, block: Block, padding: float) -> Iterator[str]:
    """Operators that do not do the share of the work that `Operator.split` says.

    An operator that strategies divided does one part in the product of their degrees, rounded up by axis and padded by
    at most `padding`; any other does all of it. Where a block holds copies with samples of their own, the work is that
    of one copy, of several, or of all together. Groups of ranks laid over the same devices divide the work no further
    than there are devices: what one of them divided, another gathered.
    """
    together = _divisors(block.samples // whole.samples)
    for before, after in pairs(whole, block):
        parts = claimed(block, after)
        if block.folds:
            parts = max(part for part in _divisors(parts) if part <= block.width)
        most = 1 + AGREEMENT
        if after.split:
            most *= _rounding_up(before, after, parts) * (1 + padding)
        for unit in WORK:
            unsplit, left = AMOUNTS[unit](before), AMOUNTS[unit](after)
            expected = (unsplit * count for count in together)
            if not any(amount * (1 - AGREEMENT) <= left * parts <= amount * most for amount in expected):
                by = ", ".join(f"{name} {block.degree(name)}" for name in after.split) or "none"
                yield (
                    f"operator {before.name!r} does {left:g} of {unsplit:g} {unit}, but the strategies that divided it "
                    f"by its `split` ({by}) leave one part in {parts}"
                )


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def _rounding_up(before: Operator, after: Operator, parts: int) -> float:
    """By how much the share of the largest rank may exceed the even share, over the axes that were divided unevenly."""
    sizes = dict(after.space)
    slack = 1.0
    for axis, size in before.space:
        share = sizes.get(axis, size)
        if share == size or (size % share == 0 and (share > 1 or size >= parts)):
            continue  # Left whole, or divided evenly.
        slack *= share / (share - 1) if share > 1 else parts / size
    return slack


def lost_parameters(whole: Block, block: Block) -> Iterator[str]:
    """Parameters of which the ranks hold less than the whole, what they hold in common counted once; or more."""
    for before, after in pairs(whole, block):
        held = {parameter.name: parameter for parameter in after.parameters}
        for parameter in before.parameters:
            left = held.get(parameter.name)
            if left is None:
                yield f"operator {before.name!r} has lost its parameter {parameter.name!r}"
                continue
            holders = block.width / len(block.replica_ranks(left.group))
            if left.count * holders < parameter.count * (1 - AGREEMENT):
                yield (
                    f"parameter {parameter.name!r} of operator {before.name!r} has {parameter.count} scalars, but "
                    f"{holders:g} groups of ranks with different parameters hold {left.count} each"
                )
            if left.count > parameter.count:
                yield f"parameter {parameter.name!r} of operator {before.name!r} grows to {left.count} scalars a rank"


def unreduced_gradients(case: Case, block: Block, strategy: str) -> Iterator[str]:
    """Weights that ranks along an axis of the strategy hold in common while they work on different tokens, undeclared.

    Its axes are those it added, whatever their names, and ranks it laid over the block under its own name. Where an
    operator is divided over some of them, its weights are divided as far, or held alike along the rest.
    """
    known = {axis.name for axis in case.block.axes} | {COPIES}
    own = [axis for axis in block.axes if axis.name not in known]
    own += [Axis(fold.name, fold.degree) for fold in block.folds if fold.name == strategy]
    for before, after in pairs(case.block, block):
        axes = [axis for axis in own if axis.degree > 1 and {axis.name, strategy} & set(after.split)]
        for old, new in zip(before.parameters, after.parameters, strict=False):
            if not is_matrix(new) or exhausted(old.shape, new.shape):
                continue
            apart = [axis for axis in axes if (new.group, axis.name) not in block.replicated]
            ranks = prod(axis.degree for axis in apart)
            if nearest_divisor(ranks, old.count / new.count) < ranks:
                names = " and ".join(repr(axis.name) for axis in apart)
                yield (
                    f"the ranks of {names} divide operator {before.name!r}, and some hold the same of its parameter "
                    f"{new.name!r}; `Block.replicated` must say so of its group {new.group!r}, or its gradients are "
                    "not reduced over them"
                )


def is_matrix(parameter: Parameter) -> bool:
    """Whether a parameter is a weight of a product: gradients of norms and biases are too small to be modelled."""
    return sum(size > 1 for _, size in parameter.shape) > 1


def claimed(block: Block, operator: Operator) -> int:
    """Ranks over which an operator says it is divided (`Operator.split`)."""
    return prod(block.degree(name) for name in dict.fromkeys(operator.split))


def folded(block: Block, operator: Operator) -> bool:
    """Whether ranks laid over the block in another order than its axes' divide an operator."""
    return not {fold.name for fold in block.folds}.isdisjoint(operator.split)


def nearest_divisor(number: int, ratio: float) -> int:
    """The divisor of `number` that `ratio` is nearest to: shares are rounded up, so that ratios may be a little off."""
    return min(_divisors(number), key=lambda divisor: abs(log(ratio / divisor)))


def exhausted(old: Shape, new: Shape) -> bool:
    """Whether an axis was divided until 1 was left, which more ranks than it is long then hold in common."""
    return any(size == 1 and axis_size(old, axis) > 1 for axis, size in new)


def rank_bytes(block: Block, training: Training) -> float:
    """Bytes of one rank: parameters with their gradients and optimizer state, and what the backward pass keeps.

    Of a tensor gathered from other ranks the rank's own share counts: where tokens are gathered to parameters, keeping
    others' tokens is the price of holding fewer parameters.
    """
    kept = precision(training.precision)
    state = kept.weights + kept.gradients + optimizer(training.optimizer).state_bytes(kept)
    parameters = sum(operator.parameter_count for operator in block.graph.operators)
    sizes = {tensor.name: tensor.bytes for o in block.graph.operators for tensor in (*o.inputs, *o.outputs)}
    for operator in block.graph.operators:
        made = operator.collective.forward if operator.collective is not None else ()
        if len(made) == 1 and made[0].kind == "all_gather":
            gathered = len(block.ranks(made[0].axis))
            sizes.update({tensor.name: tensor.bytes / gathered for tensor in operator.outputs})
    saved = dict.fromkeys(name for operator in block.graph.operators for name in operator.saves)
    return parameters * state + sum(sizes[name] for name in saved)


def growing_memory(case: Case, smaller: Block, block: Block) -> Iterator[str]:
    """Whether a rank needs more memory than without the strategy, or more for parameters than with a smaller degree.

    What it gathers it may keep, so that between two degrees activations may grow while parameters shrink.
    """
    before, after = (rank_bytes(each, case.context.training) for each in (case.block, block))
    if after > before * (1 + AGREEMENT):
        yield f"a rank needs {after:g} bytes for parameters and saved activations, {before:g} without the strategy"
    fewer, more = (sum(operator.parameter_count for operator in b.graph.operators) for b in (smaller, block))
    if more > fewer:
        yield f"a rank holds {more} parameters, {fewer} with a smaller degree"
