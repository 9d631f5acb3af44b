"""Batch parallelism: data parallelism inside a block.

The ranks of a block share the samples of a micro-batch, as the replicas of a pipeline share those of a batch.
Where the stages of one plan may differ, each gets a data parallelism of its own, as in Piper (Tarnawski, Narayanan
and Phanishayee, NeurIPS 2021) and Alpa (arXiv 2201.12023).
"""

from collections.abc import Sequence

from nest.graph import OTHER_SAMPLES, Block, divide
from nest.hooks.protocols import StrategyContext

AXIS = "batch"
"""The axis of tensors that is divided."""


class BatchParallelism:
    """Divides the samples of a micro-batch over the ranks of an outermost axis; every rank holds all parameters.

    It comes after the other strategies, whose ranks so lie closer together: they communicate in every operator,
    these ranks once per step.
    """

    name = "batch"
    after: tuple[str, ...] = ("tp", "sp", "cp", "ep", "etp")
    by_default = False

    def degrees(self, block: Block, context: StrategyContext) -> Sequence[int]:
        """Divisors of the samples of each copy the block holds, whose blocks the cluster admits."""
        return [
            degree
            for degree in range(1, min(block.micro_batch, context.cluster.size) + 1)
            if block.micro_batch % degree == 0 and (degree == 1 or context.cluster.admits(block.width * degree))
        ]

    def apply(self, block: Block, degree: int, context: StrategyContext) -> Block:
        """The share of one of `degree` ranks; gradients of every parameter are reduced over them."""
        graph = block.graph.divided(AXIS, degree, self.name)
        # As between replicas, samples are compared with those of their rank alone.
        graph = graph.map_shapes(lambda shape: divide(shape, OTHER_SAMPLES, degree))
        return block.with_axis(self.name, degree).replicating(self.name).applied(self.name, degree, graph)
