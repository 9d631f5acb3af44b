"""Context parallelism: every operator runs on a share of the tokens, attention included.

Ring attention (Liu, Zaharia and Abbeel, arXiv 2310.01889, section 3): keys and values travel from neighbour to
neighbour while each rank attends to those at hand. Under a causal mask each rank holds two pieces of the sequence, one
from its front and one from its back, so that all have the same work (Brandon et al., Striped Attention, arXiv
2311.09431; Megatron Core's `context_parallel` package also cuts the sequence into `2*cp` pieces). The alternative
gathers keys and values first (Llama 3, arXiv 2407.21783, section 3.3.2).
"""

from collections.abc import Sequence

from attrs import evolve

from nest.graph import Block, Collective, Communication, Operator, OperatorGraph, Tensor, axis_size, has_axis, scale
from nest.hooks.protocols import StrategyContext

AXIS = "sequence"  # The divided axis of tensors.
STEPPING = ("scan", "convolution")  # Kinds of operators that need the tokens before each one.
CHANNELS = ("heads", "kv_heads", "ffn")  # Axes that may be divided in place of the sequence there.
PIECES = 2  # Pieces of the sequence on each rank, for equal work under a causal mask.
TILE = 64  # Tokens of FlashAttention-2's smallest block of queries (arXiv 2307.08691, section 3.3).
GATHERED = ".gathered"  # Suffix of keys or values gathered over the ranks.


class ContextParallelism:
    """Divides the sequence over ranks that hold all parameters."""

    name = "cp"
    after: tuple[str, ...] = ("tp", "sp")

    def degrees(self, block: Block, context: StrategyContext) -> Sequence[int]:
        """Return divisors of each share of the sequence, in pieces, in admitted blocks.

        With recurrences they also divide the heads or channels that are exchanged for tokens.
        """
        lengths = {axis_size(op.space, AXIS) for op in block.graph.operators if has_axis(op.space, AXIS)}
        stepping = [op for op in block.graph.operators if op.kind in STEPPING]
        exchanged = {pair for op in stepping for t in op.inputs for pair in t.shape if pair[0] in CHANNELS}
        if not lengths or any(not {axis for axis, _ in op.space}.intersection(CHANNELS) for op in stepping):
            return (1,)
        longest = max(lengths)
        return [
            degree
            for degree in range(1, min(longest // PIECES, context.cluster.size) + 1)
            if degree == 1
            or (
                longest % (PIECES * degree) == 0
                and all(length % degree == 0 for length in lengths)
                and all(size % degree == 0 or (axis == "kv_heads" and degree % size == 0) for axis, size in exchanged)
                and context.cluster.admits(block.width * degree)
            )
        ]

    def searched(self, block: Block, context: StrategyContext) -> Sequence[int]:
        """Return degrees with pieces of at least an attention kernel's tile; others are tried only if named.

        Below a tile a kernel does the same work for fewer tokens, which no cost model here counts.
        """
        longest = max((axis_size(op.space, AXIS) for op in block.graph.operators), default=1)
        return range(1, longest // (PIECES * TILE) + 1)

    def apply(self, block: Block, degree: int, context: StrategyContext) -> Block:
        """Return the share of one of `degree` ranks; gradients of every parameter are reduced over them."""
        shares = block.graph.divided(AXIS, degree, self.name)
        gathering = context.training.context_exchange == "all_gather"
        graph = self._with_gathers(shares, degree) if gathering else self._with_rings(shares, degree)
        graph = self._with_exchanges(graph, degree)
        return block.with_axis(self.name, degree).replicating(self.name).applied(self.name, degree, graph)

    def _with_rings(self, graph: OperatorGraph, degree: int) -> OperatorGraph:
        """Return the graph with rings: attention to one share per step, which hides the next share's transfer.

        Backward, keys and values travel once more, and the gradients of each share collect on their way to its owner.
        """

        def change(operator: Operator) -> tuple[Operator, ...]:
            travelling = keys_and_values(operator)
            if not travelling:
                return (operator,)
            steps = (Communication("point_to_point", sum(t.bytes for t in travelling), self.name, degree - 1),)
            again = steps if any(tensor.differentiable for tensor in operator.outputs) else ()
            gradients = steps if any(tensor.differentiable for tensor in travelling) else ()
            ring = Operator(
                name=f"{operator.name}.ring",
                layer=operator.layer,
                kind="collective",
                inputs=travelling,
                collective=Collective(
                    steps, again + gradients, under=operator.name, share=(degree - 1) / degree, overlap=""
                ),
            )
            return (ring, evolve(operator, steps=operator.steps * degree))

        return graph.map_operators(change)

    def _with_gathers(self, graph: OperatorGraph, degree: int) -> OperatorGraph:
        """Return the graph with keys and values gathered before attention and again before its backward pass."""
        gathered: set[tuple[str, str]] = set()  # By layer: none keeps keys for another that shares them.

        def change(operator: Operator) -> tuple[Operator, ...]:
            wanted = keys_and_values(operator)
            fresh = tuple(tensor for tensor in wanted if (operator.layer, tensor.name) not in gathered)
            gathered.update((operator.layer, tensor.name) for tensor in fresh)
            inputs = tuple(_gathered(t, degree, operator.layer) if t in wanted else t for t in operator.inputs)
            saves = tuple(name for name in operator.saves if name not in {tensor.name for tensor in wanted})
            gathers = (self._gather(operator, t, degree, t.name in operator.saves) for t in fresh)
            return (*gathers, evolve(operator, inputs=inputs, saves=saves) if wanted else operator)

        return graph.map_operators(change)

    def _with_exchanges(self, graph: OperatorGraph, degree: int) -> OperatorGraph:
        """Return the graph with exchanges of tokens for heads or channels around recurrences and convolutions.

        A rank then steps through the whole sequence with its share of them (DeepSpeed-Ulysses, arXiv 2309.14509;
        `mamba_context_parallel.py` of Megatron Core), as much work as with a share of the tokens.
        """
        stepping = [operator for operator in graph.operators if operator.kind in STEPPING]
        made = {tensor.name for operator in stepping for tensor in operator.outputs}
        read = {t.name for operator in graph.operators if operator.kind not in STEPPING for t in operator.inputs}
        arrived: set[str] = set()

        def change(operator: Operator) -> tuple[Operator, ...]:
            if operator.kind not in STEPPING:
                return (operator,)
            entering = [t for t in operator.inputs if t.name not in made and t.name not in arrived]
            arrived.update(tensor.name for tensor in entering)
            leaving = [tensor for tensor in operator.outputs if tensor.name in read]
            before = [self._exchange(f"{operator.name}.exchange of {t.name}", operator, t, degree) for t in entering]
            after = [self._exchange(f"{operator.name}.exchange back", operator, t, degree) for t in leaving]
            return (*before, operator, *after)

        return graph.map_operators(change)

    def _exchange(self, name: str, operator: Operator, tensor: Tensor, degree: int) -> Operator:
        """Return the exchange of a tensor; one without heads or channels is gathered whole."""
        sizes = [size for axis, size in tensor.shape if axis in CHANNELS]
        if sizes:
            calls = (Communication("all_to_all", tensor.bytes * max(1.0, degree / sizes[0]), self.name),)
            collective = Collective(calls, calls if tensor.differentiable else (), overlap="")
        else:
            gather = Communication("all_gather", tensor.bytes * degree, self.name)
            scatter = Communication("reduce_scatter", tensor.bytes * degree, self.name)
            collective = Collective((gather,), (scatter,) if tensor.differentiable else (), overlap="")
        return Operator(name=name, layer=operator.layer, kind="collective", inputs=(tensor,), collective=collective)

    def _gather(self, reader: Operator, tensor: Tensor, degree: int, saved: bool) -> Operator:
        whole = tensor.bytes * degree
        gather = (Communication("all_gather", whole, self.name),)
        # Of what sequence parallelism gathered, its gather keeps the share: both gather again.
        again = gather if saved or f"{GATHERED} in " in tensor.name else ()
        scatter = (Communication("reduce_scatter", whole, self.name),) if tensor.differentiable else ()
        return Operator(
            name=f"{reader.name}.gather of {tensor.name}",
            layer=reader.layer,
            kind="collective",
            inputs=(tensor,),
            outputs=(_gathered(tensor, degree, reader.layer),),
            saves=(tensor.name,) if saved else (),
            collective=Collective(gather, (*again, *scatter), overlap=""),
        )


def keys_and_values(operator: Operator) -> tuple[Tensor, ...]:
    """Return the inputs of attention at every key position: all but its first input and the choice of keys."""
    if operator.kind != "attention" or not has_axis(operator.space, "keys"):
        return ()
    sources = (tensor for tensor in operator.inputs[1:] if not has_axis(tensor.shape, "keys"))
    return tuple(tensor for tensor in sources if has_axis(tensor.shape, AXIS))


def _gathered(tensor: Tensor, degree: int, layer: str) -> Tensor:
    shared = "" if tensor.name.startswith(f"{layer}/") else f" for {layer}"
    return evolve(tensor, name=tensor.name + GATHERED + shared, shape=scale(tensor.shape, AXIS, degree))
