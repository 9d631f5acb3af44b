"""Sequence parallelism.

Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, arXiv 2205.05198, section 4.2.2. The
ranks of tensor parallelism also divide what it leaves whole: norms, residual sums and routers run on a share of the
tokens. An all-reduce of partial sums becomes a reduce-scatter along the sequence; the inputs of split operators are
gathered first. Their saved inputs stay shares and are gathered again in the backward pass.
"""

from collections.abc import Sequence

from attrs import evolve

from nest.graph import WHOLE_VOCAB, Block, Collective, Communication, Operator, OperatorGraph, Tensor, divide, has_axis
from nest.hooks.protocols import StrategyContext
from nest.strategies.cp import keys_and_values

RANKS = "tp"  # The strategy whose ranks divide the sequence.
GATHERED = ".gathered"  # Suffix of whole tensors gathered from the ranks' shares.


class SequenceParallelism:
    """Divides the sequence over the tensor-parallel ranks wherever tensor parallelism divides nothing."""

    name = "sp"
    after: tuple[str, ...] = (RANKS,)

    def degrees(self, block: Block, context: StrategyContext) -> Sequence[int]:
        """Return 1 (off), and the tensor-parallel degree if it divides every sequence."""
        degree = block.degree(RANKS)
        lengths = {size for op in block.graph.operators for axis, size in op.space if axis == "sequence"}
        if degree == 1 or not lengths or any(length % degree for length in lengths):
            return (1,)
        return (1, degree)

    def apply(self, block: Block, degree: int, context: StrategyContext) -> Block:
        """Return the share of one of `degree` ranks.

        Parameter groups that tensor parallelism never splits, such as routed experts, now meet other tokens on every
        rank, so their gradients are reduced over the ranks.
        """
        whole = _whole_groups(block.graph)
        shared = evolve(block, replicated=(*block.replicated, *((group, RANKS) for group in whole)))
        return shared.applied(self.name, degree, _Rewriter(block.graph, degree).rewritten())


class _Rewriter:
    """Rewrites one graph.

    Attributes:
        gathered: by layer and name, the shared tensors that split operators of the layer read whole.
        saved: those needed by the backward pass, and whether only for gradients of weights.
    """

    def __init__(self, graph: OperatorGraph, degree: int) -> None:
        self.graph = graph
        self.degree = degree
        made = {t.name for op in graph.operators if RANKS not in op.split for t in op.outputs}
        self.gathered: dict[tuple[str, str], Tensor] = {}
        self.saved: dict[tuple[str, str], bool] = {}
        for operator in graph.operators:
            if RANKS not in operator.split:
                self._gather_keys(operator)
            for tensor in operator.inputs:
                place = operator.layer, tensor.name
                # A gradient sum stands in front of what has gradients; the rest is shared if made here.
                whole = _is_gradient_sum(operator) or (
                    RANKS in operator.split and not tensor.differentiable and tensor.name in made
                )
                if whole and has_axis(tensor.shape, "sequence"):
                    self.gathered.setdefault(place, tensor)
                if place in self.gathered and tensor.name in operator.saves and RANKS in operator.split:
                    # What a product saved of its input it multiplies with gradients of its output, for its weights.
                    self.saved[place] = self.saved.get(place, True) and bool(operator.parameters)

    def _gather_keys(self, operator: Operator) -> None:
        """Note the keys of an attention with a share of the queries on each rank."""
        for tensor in keys_and_values(operator):
            self.gathered[operator.layer, tensor.name] = tensor
            if tensor.name in operator.saves:
                self.saved[operator.layer, tensor.name] = False

    def rewritten(self) -> OperatorGraph:
        done: set[tuple[str, str]] = set()

        def change(operator: Operator) -> tuple[Operator, ...]:
            if any(has_axis(tensor.shape, WHOLE_VOCAB) for tensor in operator.inputs):
                return (operator,)
            shared = not _is_gradient_sum(operator) and RANKS not in operator.split
            if shared and not keys_and_values(operator):
                return (self._shared(operator),)
            needed = [t for t in operator.inputs if (operator.layer, t.name) in self.gathered]
            new = [tensor for tensor in needed if (operator.layer, tensor.name) not in done]
            done.update((operator.layer, tensor.name) for tensor in new)
            gathers = tuple(self._gather(operator, tensor) for tensor in new)
            if _is_gradient_sum(operator):
                return gathers if needed else (operator,)
            reading = self._reading_gathered(operator)
            if shared:
                inputs = tuple(
                    t if each in needed else self._tensor_share(t)
                    for t, each in zip(reading.inputs, operator.inputs, strict=True)
                )
                reading = evolve(self._shared(reading), inputs=inputs)
            return (*gathers, reading)

        return self.graph.map_operators(change)

    def _shared(self, operator: Operator) -> Operator:
        """Return an operator that tensor parallelism leaves whole, on a share of the tokens."""
        if operator.collective is None:
            return evolve(
                operator,
                space=divide(operator.space, "sequence", self.degree),
                inputs=tuple(self._tensor_share(tensor) for tensor in operator.inputs),
                outputs=tuple(self._tensor_share(tensor) for tensor in operator.outputs),
                split=(*operator.split, SequenceParallelism.name),
            )
        if _is_sum(operator) and all(_is_stream(tensor) for tensor in operator.outputs):
            return self._scatter(operator)
        return operator

    def _scatter(self, operator: Operator) -> Operator:
        """Return the all-reduce of partial sums as a reduce-scatter, whose gradient is an all-gather."""
        whole = sum(tensor.bytes for tensor in operator.outputs)
        return evolve(
            operator,
            outputs=tuple(self._tensor_share(tensor) for tensor in operator.outputs),
            collective=Collective(
                forward=(Communication("reduce_scatter", whole, RANKS),),
                backward=(Communication("all_gather", whole, RANKS),) if _has_gradient(operator) else (),
            ),
        )

    def _gather(self, reader: Operator, tensor: Tensor) -> Operator:
        """Return the all-gather of `tensor` for `reader`'s layer; its gradient is a reduce-scatter."""
        place = reader.layer, tensor.name
        saved = place in self.saved
        gather = Communication("all_gather", tensor.bytes, RANKS)
        again = (gather,) if saved else ()
        gradient = (Communication("reduce_scatter", tensor.bytes, RANKS),) if tensor.differentiable else ()
        return Operator(
            name=f"{reader.name}.gather of {tensor.name}",
            layer=reader.layer,
            kind="collective",
            inputs=(self._tensor_share(tensor),),
            outputs=(_gathered(tensor, reader.layer),),
            saves=(tensor.name,) if saved else (),
            collective=Collective(
                forward=(gather,),
                backward=again + gradient,
                weight_gradients=len(again) if self.saved.get(place) else 0,
            ),
        )

    def _reading_gathered(self, operator: Operator) -> Operator:
        """Return a split operator with gathered inputs, which the gather saves in its place."""
        here = {t.name for t in operator.inputs if (operator.layer, t.name) in self.gathered}
        if not here:
            return operator
        inputs = tuple(_gathered(t, operator.layer) if t.name in here else t for t in operator.inputs)
        return evolve(operator, inputs=inputs, saves=tuple(name for name in operator.saves if name not in here))

    def _tensor_share(self, tensor: Tensor) -> Tensor:
        return tensor.divided("sequence", self.degree)


def _whole_groups(graph: OperatorGraph) -> tuple[str, ...]:
    """Return parameter groups without an operator split by tensor parallelism."""
    groups = dict.fromkeys(p.group for operator in graph.operators for p in operator.parameters)
    split = {p.group for operator in graph.operators if RANKS in operator.split for p in operator.parameters}
    return tuple(group for group in groups if group not in split)


def _gathered(tensor: Tensor, layer: str) -> Tensor:
    return evolve(tensor, name=f"{tensor.name}{GATHERED} in {layer}")


def _is_stream(tensor: Tensor) -> bool:
    """Return whether ranks may share a tensor's tokens: not sums over the vocabulary, which the loss needs."""
    return has_axis(tensor.shape, "sequence") and (has_axis(tensor.shape, "hidden") or has_axis(tensor.shape, "rank"))


def _has_gradient(operator: Operator) -> bool:
    return any(tensor.differentiable for tensor in operator.outputs)


def _is_sum(operator: Operator) -> bool:
    """Return whether tensor parallelism added this operator after partial sums."""
    return operator.collective is not None and any(call.axis == RANKS for call in operator.collective.forward)


def _is_gradient_sum(operator: Operator) -> bool:
    """Return whether tensor parallelism added this operator before a split one, for the gradient of its input."""
    return (
        operator.collective is not None
        and not operator.outputs
        and any(call.axis == RANKS for call in operator.collective.backward)
    )
