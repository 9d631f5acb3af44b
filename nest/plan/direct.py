"""What stages receive where tensors go straight from their makers to their readers (`search.tensors: direct`)."""

from collections.abc import Sequence

from nest.instance import Instance, Solution
from nest.plan.layout import Boundary

Sizes = tuple[tuple[int, float], ...]
"""Levels of the cluster, each with bytes per micro-batch that come over it as one message."""


def received(instance: Instance, solution: Solution, index: int, around: Sequence[Boundary]) -> tuple[Sizes, Sizes]:
    """What a stage receives: activations, then gradients.

    Activations are of the tensors that it reads and stages in front make, each once, from its maker. Gradients are of
    those that it makes and stages behind read, each once, over the outermost level between it and a reader.

    Args:
        instance: of the plan.
        solution: the plan.
        index: of the stage.
        around: the boundary in front of each stage, then that behind the last.
    """
    candidate = instance.candidates[solution.stages[index].candidate]
    stage_of = {layer: number for number, stage in enumerate(solution.stages) for layer in stage.layers}
    activations: dict[int, float] = {}
    gradients: dict[int, float] = {}
    for (producer, consumers), size in zip(instance.graph.tensors, candidate.tensor_bytes.tolist(), strict=True):
        made, read = stage_of[producer], {stage_of[consumer] for consumer in consumers}
        if size and made < index and index in read:
            level = _level(around, made, index)
            activations[level] = activations.get(level, 0.0) + size
        if size and made == index < max(read, default=index):
            level = _level(around, index, max(read))
            gradients[level] = gradients.get(level, 0.0) + size
    return tuple(sorted(activations.items())), tuple(sorted(gradients.items()))


def _level(around: Sequence[Boundary], front: int, behind: int) -> int:
    """The level of two stages together: as blocks lie in pipeline order, that of the outermost boundary between."""
    return max(boundary.level for boundary in around[front + 1 : behind + 1])
