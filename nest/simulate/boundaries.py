"""What stages send each other: cuts, levels and messages, read from PROBLEM.md sections 1, 3 and 4 once more."""

from collections.abc import Sequence

from nest.instance import Candidate, Instance, Solution
from nest.plan.chunks import even_chunks


def replica_size(instance: Instance, solution: Solution) -> int:
    """Devices of one replica (`K` of PROBLEM.md section 3)."""
    widest = max(instance.candidates[stage.candidate].width for stage in solution.stages)
    return widest * (instance.cluster.size // (solution.replicas * widest))


def blocks(instance: Instance, solution: Solution) -> list[list[tuple[int, int]]]:
    """For each stage, the first and last device of its block in each replica (PROBLEM.md section 3)."""
    replica = replica_size(instance, solution)
    found = []
    for stage in solution.stages:
        width = instance.candidates[stage.candidate].width
        starts = [
            number * replica + stage.offset
            if solution.rank_order == "pp-inner"
            else stage.offset * solution.replicas + number * width
            for number in range(solution.replicas)
        ]
        found.append([(start, start + width - 1) for start in starts])
    return found


def places(instance: Instance, solution: Solution) -> tuple[tuple[int, ...], ...]:
    """The layers of each chunk in pipeline order; chunk `j` is of stage `j mod s`."""
    if solution.chunks == 1:
        return tuple(stage.layers for stage in solution.stages)
    return even_chunks(instance, len(solution.stages), solution.chunks)


def levels(instance: Instance, solution: Solution) -> list[int]:
    """Level of the boundary in front of each stage; in front of the first is the last one, with several chunks.

    It is the worst over the replicas; -1 where there is none.
    """
    found = []
    where = blocks(instance, solution)
    for here, before in zip(where, [where[-1], *where[:-1]], strict=True):
        reached = [
            instance.cluster.level(min(one[0], other[0]), max(one[1], other[1]))
            for one, other in zip(here, before, strict=True)
        ]
        found.append(max(reached))
    if solution.chunks == 1 or len(where) == 1:
        found[0] = -1
    return found


class Cuts:
    """Bytes that cross the cut in front of each place: `cut(D)` of PROBLEM.md section 4."""

    def __init__(self, instance: Instance, dealt: Sequence[Sequence[int]]) -> None:
        """Lay the tensors over the places.

        Args:
            instance: of the plan.
            dealt: layers of each place.
        """
        place = {layer: index for index, layers in enumerate(dealt) for layer in layers}
        self._crossed = [
            (place[producer] + 1, max((place[each] for each in consumers), default=-1))
            for producer, consumers in instance.graph.tensors
        ]
        self._places = len(dealt)
        self._found: dict[str, list[float]] = {}

    def in_front(self, candidate: Candidate, place: int) -> float:
        """Bytes each device of `candidate` sends or receives over the cut in front of a place; 0 behind the last."""
        if candidate.name not in self._found:
            sizes = [0.0] * (self._places + 1)
            for (first, last), size in zip(self._crossed, candidate.tensor_bytes.tolist(), strict=True):
                for crossed in range(first, last + 1):
                    sizes[crossed] += size
            self._found[candidate.name] = sizes
        return self._found[candidate.name][place]


def message(instance: Instance, size: float, level: int) -> float:
    """Seconds of one message (PROBLEM.md section 1)."""
    if size == 0 or level < 0:
        return 0.0
    link = instance.cluster.levels[level]
    return link.latency + size / link.bandwidth
