"""Batch parallelism: data parallelism inside a block.

The ranks of a block share the samples of a micro-batch, as the replicas of a pipeline share those of a batch. If stages
of a plan may differ, each has its own degree, as in Piper (Tarnawski, Narayanan and Phanishayee, NeurIPS 2021) and Alpa
(arXiv 2201.12023).
"""

from collections.abc import Sequence

from nest.graph import OTHER_SAMPLES, Block, divide
from nest.hooks.protocols import StrategyContext

AXIS = "batch"  # The divided axis of tensors.


class BatchParallelism:
    """Divides the samples of a micro-batch over the ranks of an outermost axis; every rank holds all parameters.

    It comes after the other strategies, whose ranks communicate in every operator and so lie closer together; these
    communicate once per step.
    """

    name = "batch"
    after: tuple[str, ...] = ("tp", "sp", "cp", "ep", "etp")
    by_default = False

    def degrees(self, block: Block, context: StrategyContext) -> Sequence[int]:
        """Return divisors of the samples of each copy in the block, of sizes that the cluster admits."""
        return [
            degree
            for degree in range(1, min(block.micro_batch, context.cluster.size) + 1)
            if block.micro_batch % degree == 0 and (degree == 1 or context.cluster.admits(block.width * degree))
        ]

    def apply(self, block: Block, degree: int, context: StrategyContext) -> Block:
        """Return the share of one of `degree` ranks; gradients of every parameter are reduced over them."""
        graph = block.graph.divided(AXIS, degree, self.name)
        # As between replicas, samples are compared with those of their rank alone.
        graph = graph.map_shapes(lambda shape: divide(shape, OTHER_SAMPLES, degree))
        return block.with_axis(self.name, degree).replicating(self.name).applied(self.name, degree, graph)
