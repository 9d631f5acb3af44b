"""Invariants of strategies: layers, tensors others read, alikeness, and the amounts of all ranks together.

Work, parameters and activations on the ranks add up to the whole, and memory does not grow. Amounts are compared per
sample of the micro-batch, over all ranks of a block, which may hold several copies of a part of the model with
different samples (`Block.samples`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import log, prod
from operator import gt, lt, ne
from typing import Any

from attrs import evolve, frozen

from nest.catalogue import optimizer, precision
from nest.graph import Axis, Block, Operator, OperatorGraph, Parameter, Shape, Tensor, axis_size
from nest.hooks.protocols import StrategyContext
from nest.public.checks import COPIES, region, sound_graph, sound_ranks
from nest.spec import Training
from nest.tolerances import AGREEMENT

AMOUNTS: dict[str, Callable[[Operator], float]] = {
    "FLOP": lambda operator: operator.flops,
    "model FLOP": lambda operator: operator.model_flops,
    "bytes written": lambda operator: operator.bytes_written,
    "bytes read": lambda operator: operator.bytes_read,
}
"""Amounts of which all ranks together must have at least as much as the whole."""

WORK = ("FLOP", "model FLOP")  # Those of which a rank does the share in `Operator.split`.


@frozen
class Case:
    """A block to apply a strategy to, called `name` (model, cluster and degrees) for people.

    Attributes:
        whole: the block before any strategy.
        block: after earlier strategies.
        context: cluster and training.
    """

    name: str
    whole: Block
    block: Block
    context: StrategyContext


def bad_degrees(degrees: Any) -> Iterator[str]:
    """Yield reasons why `degrees` are not ascending whole numbers from 1, with 1 among them."""
    degrees_given = list(degrees)
    wrong = [
        degree for degree in degrees_given if isinstance(degree, bool) or not isinstance(degree, int) or degree < 1
    ]
    if wrong:
        yield f"degrees are whole numbers of at least 1; {wrong[0]!r} is none"
    elif 1 not in degrees_given:
        yield f"1, which leaves the block alone, is not among the degrees {degrees_given}"
    elif degrees_given != sorted(set(degrees_given)):
        yield f"degrees are to be ascending, each once; they are {degrees_given}"


def bad_block(case: Case, strategy: str, degree: int, block: Block) -> Iterator[str]:
    """Yield reasons why `block` is not `case.block` under `strategy` at `degree`."""
    sound_ranks(block, strategy, case.block, degree)
    grown = f"the block is {block.width} devices wide and was {case.block.width};"
    growth = block.width // case.block.width
    if degree % growth:
        yield f"{grown} it may grow by a factor that divides the degree, {degree}"
    elif case.block.width % (degree // growth):
        yield f"{grown} where it does not grow by all of the degree, {degree}, the rest must be ranks it had"


def changed_layers(before: OperatorGraph, after: OperatorGraph) -> Iterator[str]:
    """Yield changed layers, and tensors between them that lost name, producer or reader."""
    if (after.layers, after.blocks) != (before.layers, before.blocks):
        yield "the names of layers or of repeated blocks changed"
        return
    left = {crossing.tensor.name: crossing for crossing in after.layer_tensors}
    for crossing in before.layer_tensors:
        name, producer = crossing.tensor.name, before.layers[crossing.producer]
        now = left.get(name)
        if now is None:
            yield f"tensor {name!r}, which layer {producer!r} makes for others, is no longer passed on"
        elif (now.producer, now.consumers) != (crossing.producer, crossing.consumers):
            yield f"tensor {name!r} is made or read by other layers than before"


def bad_numbers(graph: OperatorGraph) -> Iterator[str]:
    """Yield impossible sizes and amounts, saves of unknown tensors, and tensors of no size."""
    sound_graph(graph)
    for operator in graph.operators:
        for tensor in (*operator.inputs, *operator.outputs):
            if not tensor.itemsize:
                yield f"the itemsize of tensor {tensor.name!r} is 0"


def disagreeing_tensors(block: Block) -> Iterator[str]:
    """Yield tensors written in one shape and read in another.

    Token ids and labels lie whole on every rank, of which a rank may read a share.
    """
    shapes: dict[str, Shape] = {}
    for operator in block.graph.operators:
        for tensor in (*operator.inputs, *operator.outputs):
            known = shapes.setdefault(tensor.name, tensor.shape)
            if tensor.differentiable and known != tensor.shape:
                yield (
                    f"tensor {tensor.name!r} is {shape_text(known)} in one place and {shape_text(tensor.shape)} where "
                    f"operator {operator.name!r} handles it; a collective must stand between"
                )


def unmatched_work(whole: Block, block: Block) -> Iterator[str]:
    """Yield operators with other points than their outputs, more than their inputs, or fewer than their parameters.

    An input may be larger: a rank takes its share of it. Parameters may be smaller, and gathered.
    """
    for before, after in pairs(whole, block):
        points = dict(after.space)
        ways: tuple[tuple[str, Sequence[Any], Sequence[Any], Callable[[int, int], bool]], ...] = (
            ("writes", before.outputs, after.outputs, ne),
            ("reads", before.inputs, after.inputs, lt),
            ("holds", before.parameters, after.parameters, gt),
        )
        for verb, old, new, wrong in ways:
            for had, has in zip(old, new, strict=False):
                sizes = dict(had.shape)
                for axis, size in has.shape:
                    equal = sizes.get(axis) == dict(before.space).get(axis)
                    if axis in points and equal and wrong(size, points[axis]):
                        yield (
                            f"operator {before.name!r} works on {points[axis]} of {axis!r}, but {verb} {size} of it in "
                            f"{has.name!r}"
                        )


def shape_text(shape: Shape) -> str:
    """Format a shape: `sequence 64 x hidden 128`."""
    return " x ".join(f"{axis} {size}" for axis, size in shape) or "a scalar"


def changed_outside(case: Case, block: Block, group: str) -> Iterator[str]:
    """Yield changes of a strategy outside the regions of `group`, its only declared ones."""
    after = {operator.name: operator for operator in block.graph.operators}
    for operators in case.block.graph.by_layer:
        inside = region(operators, group)
        for operator in operators:
            if operator.name not in inside and after.get(operator.name) != operator:
                yield f"{operator.name} is not what it was, outside the regions of {group!r}"
                return
    if block.width * case.block.samples != case.block.width * block.samples:
        yield f"{block.width} devices take {block.samples} samples, where {case.block.width} took {case.block.samples}"
    names = [axis.name for axis in case.block.axes if axis.name != COPIES]
    names += [fold.name for fold in case.block.folds if fold.group != group]
    moved = [name for name in names if block.lie(name) != case.block.lie(name)]
    if moved:
        yield f"the ranks of {moved[0]!r} lie otherwise than they did"


def unlike_layers(before: OperatorGraph, after: OperatorGraph) -> Iterator[str]:
    """Yield layers that were equal up to names and no longer are."""
    contents = [_content(operators) for operators in before.by_layer]
    rewritten = [_content(operators) for operators in after.by_layer]
    for index, content in enumerate(contents):
        first = contents.index(content)
        if rewritten[index] != rewritten[first]:
            yield f"layers {before.layers[first]!r} and {before.layers[index]!r} differ in names only; now they differ"


def _content(operators: Sequence[Operator]) -> tuple[object, ...]:
    """Return a layer without its names: tensors by order of occurrence, operators by place."""
    numbers: dict[str, int] = {}
    places = {operator.name: str(index) for index, operator in enumerate(operators)}

    def nameless(tensors: Iterable[Tensor]) -> tuple[object, ...]:
        return tuple((numbers.setdefault(each.name, len(numbers)), evolve(each, name="")) for each in tensors)

    rows = []
    for operator in operators:
        calls = operator.collective
        calls = None if calls is None else evolve(calls, under=places.get(calls.under, calls.under))
        plain = evolve(operator, name="", layer="", inputs=(), outputs=(), saves=(), collective=calls)
        tensors = nameless(operator.inputs), nameless(operator.outputs)
        rows.append((plain, *tensors, tuple(numbers.get(name) for name in operator.saves)))
    return tuple(rows)


def computing(block: Block) -> dict[str, Operator]:
    """Return the operators that compute, by name."""
    return {operator.name: operator for operator in block.graph.operators if operator.collective is None}


def pairs(whole: Block, block: Block) -> Iterator[tuple[Operator, Operator]]:
    """Yield each remaining operator of the whole, before and after."""
    left = computing(block)
    return ((operator, left[name]) for name, operator in computing(whole).items() if name in left)


def lost_operators(whole: Block, block: Block) -> Iterator[str]:
    """Yield operators removed without any computing replacement."""
    before, left = computing(whole), computing(block)
    replaced = {operator.layer for name, operator in left.items() if name not in before}
    for name, operator in before.items():
        if name not in left and operator.layer not in replaced:
            yield f"operator {name!r} is gone and nothing in its layer was put in its place"


def lost_work(whole: Block, block: Block) -> Iterator[str]:
    """Yield amounts of which all ranks together have less than the whole."""
    ranks = block.width * whole.samples / block.samples
    for before, after in pairs(whole, block):
        for unit, amount in AMOUNTS.items():
            if amount(after) * ranks < amount(before) * (1 - AGREEMENT):
                yield (
                    f"{unit} of operator {before.name!r} are {amount(before):g} unsplit, but {amount(after):g} on each "
                    f"of {ranks:g} ranks: {amount(after) * ranks:g} together"
                )


def uneven_shares(whole: Block, block: Block, padding: float) -> Iterator[str]:
    """Yield operators that do not do the share of the work in `Operator.split`.

    A divided operator does one part in the product of the degrees, rounded up by axis and padded by at most `padding`;
    any other does all. With copies that have different samples, the work is that of one copy, of several, or of all.
    Groups of ranks laid over the same devices divide the work no further than there are devices: one gathers what the
    other divided.
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
    """Return the excess of the largest rank's share over the even one, from axes divided unevenly."""
    sizes = dict(after.space)
    slack = 1.0
    for axis, size in before.space:
        share = sizes.get(axis, size)
        if share == size or (size % share == 0 and (share > 1 or size >= parts)):
            continue  # Left whole, or divided evenly.
        slack *= share / (share - 1) if share > 1 else parts / size
    return slack


def lost_parameters(whole: Block, block: Block) -> Iterator[str]:
    """Yield parameters of which the ranks together hold less or more than the whole, common parts counted once."""
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
    """Yield weights held in common along an axis of the strategy by ranks with different tokens, undeclared.

    Its axes are those it added, under any name, and ranks it laid over the block under its own name. If an operator is
    divided over some of them, its weights are divided as far, or held alike along the rest.
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
    """Return whether a parameter is a product's weight: gradients of norms and biases are too small to model."""
    return sum(size > 1 for _, size in parameter.shape) > 1


def claimed(block: Block, operator: Operator) -> int:
    """Return the ranks over which an operator is divided by its own account (`Operator.split`)."""
    return prod(block.degree(name) for name in dict.fromkeys(operator.split))


def folded(block: Block, operator: Operator) -> bool:
    """Return whether ranks laid over the block in another order than its axes' divide an operator."""
    return not {fold.name for fold in block.folds}.isdisjoint(operator.split)


def nearest_divisor(number: int, ratio: float) -> int:
    """Return the divisor of `number` nearest to `ratio`, which rounded-up shares distort."""
    return min(_divisors(number), key=lambda divisor: abs(log(ratio / divisor)))


def exhausted(old: Shape, new: Shape) -> bool:
    """Return whether an axis was divided down to 1, so that further ranks hold it in common."""
    return any(size == 1 and axis_size(old, axis) > 1 for axis, size in new)


def rank_bytes(block: Block, training: Training) -> float:
    """Return bytes of one rank: parameters with gradients and optimizer state, and saved activations.

    Of a gathered tensor the rank's own share counts: keeping others' tokens, gathered to parameters, is the price of
    holding fewer parameters.
    """
    formats = precision(training.precision)
    state = formats.weights + formats.gradients + optimizer(training.optimizer).state_bytes(formats)
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
    """Yield whether a rank needs more memory than without the strategy, or for parameters at a smaller degree.

    It may keep gathered tensors, so between two degrees activations may grow while parameters shrink.
    """
    before, after = (rank_bytes(each, case.context.training) for each in (case.block, block))
    if after > before * (1 + AGREEMENT):
        yield f"a rank needs {after:g} bytes for parameters and saved activations, {before:g} without the strategy"
    fewer, more = (sum(operator.parameter_count for operator in b.graph.operators) for b in (smaller, block))
    if more > fewer:
        yield f"a rank holds {more} parameters, {fewer} with a smaller degree"
