"""Batch parallelism: data parallelism inside a block.

The ranks of a block share the samples of a micro-batch, as the replicas of a pipeline share those of a batch.
Where the stages of one plan may differ, each gets a data parallelism of its own, as in Piper (Tarnawski, Narayanan
and Phanishayee, NeurIPS 2021) and Alpa (arXiv 2201.12023).
"""

from collections.abc import Sequence

from attrs import evolve

from nest.graph import Block, Collective, Communication, Operator, Shape, Tensor, divide
from nest.hooks.protocols import StrategyContext

AXIS = "batch"
"""The axis of tensors that is divided."""


class BatchParallelism:
    """Divides the samples of a micro-batch over the ranks of an outermost axis; every rank holds all parameters.

    It comes after the other strategies, whose ranks so lie closer together: they communicate in every operator,
    these ranks once per step.
    """

    name = "batch"
    after: tuple[str, ...] = ("tp", "sp", "cp", "ep")
    by_default = False

    def degrees(self, block: Block, context: StrategyContext) -> Sequence[int]:
        """Divisors of the block's samples whose blocks the cluster admits."""
        return [
            degree
            for degree in range(1, min(block.samples, context.cluster.size) + 1)
            if block.samples % degree == 0 and (degree == 1 or context.cluster.admits(block.width * degree))
        ]

    def apply(self, block: Block, degree: int, context: StrategyContext) -> Block:
        """The share of one of `degree` ranks; gradients of every parameter are reduced over them."""
        graph = block.graph.map_operators(lambda operator: (_share(operator, degree),))
        groups = dict.fromkeys(p.group for operator in graph.operators for p in operator.parameters)
        widened = block.with_axis(self.name, degree).applied(self.name, degree, graph)
        return evolve(widened, replicated=(*block.replicated, *((group, self.name) for group in groups)))


def _share(operator: Operator, degree: int) -> Operator:
    """The operator on a share of the samples."""
    tensors = (*operator.inputs, *operator.outputs)
    if not _has_batch(operator.space) and not any(_has_batch(tensor.shape) for tensor in tensors):
        return operator
    split = operator.split
    if operator.collective is None:
        split = (*split, BatchParallelism.name)
    return evolve(
        operator,
        space=divide(operator.space, AXIS, degree),
        inputs=_tensor_shares(operator.inputs, degree),
        outputs=_tensor_shares(operator.outputs, degree),
        collective=_collective_share(operator.collective, degree),
        split=split,
    )


def _has_batch(shape: Shape) -> bool:
    return any(name == AXIS for name, _ in shape)


def _tensor_shares(tensors: tuple[Tensor, ...], degree: int) -> tuple[Tensor, ...]:
    return tuple(tensor.divided(AXIS, degree) for tensor in tensors)


def _collective_share(collective: Collective | None, degree: int) -> Collective | None:
    """The calls for a share of the samples: what an operator communicates belongs to the tensors it handles."""
    if collective is None:
        return None

    def shares(calls: tuple[Communication, ...]) -> tuple[Communication, ...]:
        return tuple(evolve(call, bytes=call.bytes / degree) for call in calls)

    return Collective(shares(collective.forward), shares(collective.backward))
