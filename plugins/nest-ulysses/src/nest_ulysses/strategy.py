"""Sequence parallelism over attention heads.

Jacobs et al., DeepSpeed Ulysses: System Optimizations for Enabling Training of Extreme Long Sequence Transformer
Models, arXiv 2309.14509, section 3. Every rank holds a share of the tokens and all parameters. Only attention mixes
tokens: before it, all-to-all exchanges turn shares of the sequence with all heads into whole sequences of a share of
the heads; behind it another one turns the result back. The backward pass does the same with the gradients.
"""

from collections.abc import Sequence
from math import gcd

from nest.graph import Block
from nest.hooks.protocols import StrategyContext
from nest_ulysses.attention import attention_cores
from nest_ulysses.rewriting import exchanging

SEQUENCE = "sequence"


class Ulysses:
    """Divides the sequence over the ranks of an axis, and inside attention the heads in its place."""

    name = "ulysses"
    after: tuple[str, ...] = ("tp", "sp", "cp")
    rank_column = True

    def degrees(self, block: Block, context: StrategyContext) -> Sequence[int]:
        """Common divisors of the heads and tokens that other strategies leave a rank, if the cluster admits the blocks.

        Key-value heads are divided while they last and then held by several ranks each, so the smaller of their
        number and the degree must divide the other. Without attention, or where heads cannot be told, only 1.
        """
        cores = attention_cores(block.graph)
        if cores is None:
            return (1,)
        tensors = (tensor for op in block.graph.operators for tensor in (*op.inputs, *op.outputs))
        lengths = {size for tensor in tensors for axis, size in tensor.shape if axis == SEQUENCE}
        common = gcd(*cores.heads, *lengths)
        return [
            degree
            for degree in range(1, min(common, context.cluster.size) + 1)
            if common % degree == 0
            and all(kv % degree == 0 or degree % kv == 0 for kv in cores.key_value_heads)
            and context.cluster.admits(block.width * degree)
        ]

    def apply(self, block: Block, degree: int, context: StrategyContext) -> Block:
        """The share of one of `degree` ranks, with its exchanges; gradients of every parameter are reduced over them.

        Raises:
            ValueError: `degree` is none of `degrees`, as the graph has no attention it could divide.
        """
        cores = attention_cores(block.graph)
        if cores is None:
            raise ValueError(f"{self.name} can be 1 only: the graph has no attention whose heads could be divided")
        shares = block.graph.divided(SEQUENCE, degree, self.name)
        graph = exchanging(block.graph, shares, cores.members, degree, self.name)
        return block.with_axis(self.name, degree).replicating(self.name).applied(self.name, degree, graph)
