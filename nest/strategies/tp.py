"""Tensor parallelism (Shoeybi et al., Megatron-LM, arXiv 1909.08053, section 3).

Weights are split by attention heads, by the inner width of feed-forward networks, and by the vocabulary. An operator
that sums over a split axis leaves partial sums, which an all-reduce completes (the paper's `g`). If a split operator
reads a tensor that every rank holds whole, the ranks' gradients of it are partial and are all-reduced in the backward
pass (the paper's `f`). Without a parallel loss (`training.loss_parallel`) every rank gathers all logits.
"""

from collections.abc import Sequence
from math import gcd

from attrs import evolve

from nest.graph import (
    WHOLE_VOCAB,
    Block,
    Collective,
    Communication,
    Operator,
    OperatorGraph,
    Shape,
    Tensor,
    divide_axes,
    has_axis,
)
from nest.hooks.protocols import StrategyContext

SPLIT = ("heads", "kv_heads", "ffn", "vocab")  # Axes split over the ranks.
PARTIAL = ".partial"  # Suffix of tensors of partial sums over the ranks.
VOCAB, GATHERED = "vocab", ".gathered"  # Axis of logits, and suffix of those gathered from the ranks.


class TensorParallelism:
    """Splits heads, feed-forward widths and vocabulary over adjacent devices."""

    name = "tp"
    after: tuple[str, ...] = ()

    def degrees(self, block: Block, context: StrategyContext) -> Sequence[int]:
        """Return divisors of every number of heads and every feed-forward width, in blocks the cluster admits.

        Key-value heads are split while they last and then held by several ranks each, so the smaller of their number
        and the degree must divide the other. The vocabulary is padded and restricts nothing.
        """
        sizes = _sizes(block.graph)
        common = gcd(*sizes["heads"], *sizes["ffn"])
        if not common:
            return (1,)
        return [
            degree
            for degree in range(1, min(common, context.cluster.size) + 1)
            if common % degree == 0
            and all(kv % degree == 0 or degree % kv == 0 for kv in sizes["kv_heads"])
            and context.cluster.admits(block.width * degree)
        ]

    def apply(self, block: Block, degree: int, context: StrategyContext) -> Block:
        """Return the share of one of `degree` ranks, with its collectives."""

        def split(shape: Shape) -> Shape:
            return divide_axes(shape, SPLIT, degree)

        graph = _gathering_logits(block.graph) if context.training.loss_parallel is False else block.graph
        graph = _with_collectives(graph.map_shapes(split))
        return block.with_axis(self.name, degree).applied(self.name, degree, graph)


def _gathering_logits(graph: OperatorGraph) -> OperatorGraph:
    """Return `graph` with an all-gather of the logits, which leaves their readers whole on every rank."""
    names: dict[str, str] = {}
    # A chunked loss holds few logits at a time, yet gathers all of them, as wide as what they are made of.
    width = {made.name: each.inputs[0].itemsize for each in graph.operators for made in each.outputs if each.inputs}

    def whole(tensor: Tensor) -> Tensor:
        return evolve(tensor, name=names.get(tensor.name, tensor.name), shape=_whole(tensor.shape))

    def change(operator: Operator) -> tuple[Operator, ...]:
        logits = [tensor for tensor in operator.inputs if has_axis(tensor.shape, VOCAB)]
        if not logits or any(has_axis(parameter.shape, VOCAB) for parameter in operator.parameters):
            return (operator,)  # What learns a column's number, such as a bias, runs on the split logits.
        split = [tensor for tensor in logits if tensor.name not in names]
        names.update({tensor.name: tensor.name + GATHERED for tensor in split})
        names.update({tensor.name: tensor.name for tensor in operator.outputs})
        changed = evolve(
            operator,
            space=_whole(operator.space),
            inputs=tuple(map(whole, operator.inputs)),
            outputs=tuple(map(whole, operator.outputs)),
            saves=tuple(names.get(name, name) for name in operator.saves),
            contracted=tuple(WHOLE_VOCAB if axis == VOCAB else axis for axis in operator.contracted),
        )
        pieces = [(tensor, max(1.0, width.get(tensor.name, 0.0) / tensor.itemsize)) for tensor in split]
        return (*[_call("all_gather", operator, "gather", each, whole(each), times) for each, times in pieces], changed)

    return graph.map_operators(change)


def _whole(shape: Shape) -> Shape:
    return tuple((WHOLE_VOCAB if axis == VOCAB else axis, size) for axis, size in shape)


def _sizes(graph: OperatorGraph) -> dict[str, set[int]]:
    sizes: dict[str, set[int]] = {axis: set() for axis in SPLIT}
    for operator in graph.operators:
        for shape in operator.shapes:
            for axis, size in shape:
                if axis in sizes:
                    sizes[axis].add(size)
    return sizes


def _is_split(shape: Shape) -> bool:
    return any(axis in SPLIT for axis, _ in shape)


def _with_collectives(graph: OperatorGraph) -> OperatorGraph:
    """Return `graph` with an all-reduce after every partial sum and for every partial gradient."""
    reduced: set[tuple[str, str]] = set()

    def change(operator: Operator) -> tuple[Operator, ...]:
        if operator.collective is not None or not any(_is_split(shape) for shape in operator.shapes):
            return (operator,)
        operator = evolve(operator, split=(*operator.split, TensorParallelism.name))
        gradients = []
        for tensor in operator.inputs:
            # A layer's readers of one tensor add their gradients up before the ranks do.
            if tensor.differentiable and not _is_split(tensor.shape) and (operator.layer, tensor.name) not in reduced:
                reduced.add((operator.layer, tensor.name))
                gradients.append(_gradient_sum(operator, tensor))
        if not any(axis in SPLIT for axis in operator.contracted):
            return (*gradients, operator)
        partial = [tensor for tensor in operator.outputs if not _is_split(tensor.shape)]
        sums = [_call("all_reduce", operator, "sum", _partial(tensor), tensor) for tensor in partial]
        return (*gradients, _leaving_partial_sums(operator, partial), *sums)

    return graph.map_operators(change)


def _gradient_sum(reader: Operator, tensor: Tensor) -> Operator:
    """Return the all-reduce of the gradient of `tensor`, which `reader` is the first of its layer to read."""
    return Operator(
        name=f"{reader.name}.gradient of {tensor.name}",
        layer=reader.layer,
        kind="collective",
        inputs=(tensor,),
        collective=Collective(backward=(Communication("all_reduce", tensor.bytes, TensorParallelism.name),)),
    )


def _leaving_partial_sums(operator: Operator, partial: Sequence[Tensor]) -> Operator:
    names = {tensor.name: _partial(tensor).name for tensor in partial}
    outputs = tuple(evolve(tensor, name=names.get(tensor.name, tensor.name)) for tensor in operator.outputs)
    return evolve(operator, outputs=outputs, saves=tuple(names.get(name, name) for name in operator.saves))


def _partial(tensor: Tensor) -> Tensor:
    return evolve(tensor, name=tensor.name + PARTIAL)


def _call(kind: str, operator: Operator, what: str, share: Tensor, tensor: Tensor, times: float = 1.0) -> Operator:
    """Return the call beside `operator` that makes `tensor` of the ranks' shares; gradients pass unchanged.

    It moves `times` the bytes of `tensor`. Frameworks hide no gather of logits, which no product follows.
    """
    moved, overlap = tensor.bytes * times, "tensor" if what == "sum" else ""
    calls = (Communication(kind, moved, TensorParallelism.name),)
    name = f"{operator.name}.{what} of {tensor.name}"
    collective = Collective(calls, overlap=overlap)
    return Operator(name, operator.layer, "collective", inputs=(share,), outputs=(tensor,), collective=collective)
