"""What replays take of tensors that go straight from their makers to their readers (`search.tensors: direct`)."""

from collections.abc import Sequence

from nest.instance import Instance, Solution
from nest.plan.layout import Boundary, received


def received_directly(
    instance: Instance, solution: Solution, index: int, around: Sequence[Boundary]
) -> tuple[list[float], list[tuple[int, float]], tuple[float, float]]:
    """Bytes that enter a stage, the seconds of its messages with their levels, and those of each way together."""
    figures = [(level.latency, level.bandwidth) for level in instance.cluster.levels]
    activations, gradients = received(instance, solution, index, around)
    ways = [
        [(level, figures[level][0] + size / figures[level][1]) for level, size in sizes]
        for sizes in (activations, gradients)
    ]
    arriving, returning = (sum(seconds for _, seconds in way) for way in ways)
    return [sum(size for _, size in activations)], ways[0] + ways[1], (arriving, returning)
