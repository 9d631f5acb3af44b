"""Lower bounds on the step time from compute and ports alone, worked out once for all that shares them."""

from collections.abc import Hashable, Sequence

import numpy
from attrs import define, field

from nest.instance import Array, Candidate, Instance, Schedule, chunks_of


def compute_bounds(candidate: Candidate) -> tuple[float, float]:
    """Seconds per micro-batch from forward and backward alone: of the longest layer, and of all."""
    times = candidate.forward + candidate.backward
    return float(times.max()), float(times.sum())


def port_bounds(candidate: Candidate) -> tuple[float, float]:
    """The same with what the busiest port needs, of the layers alone (PROBLEM.md section 4, Ports)."""
    longest, total = compute_bounds(candidate)
    if candidate.busy is None:
        return longest, total
    return max(longest, float(candidate.busy.max())), max(total, float(candidate.busy.sum(axis=1).max()))


@define(eq=False)
class ComputeBounds:
    """The bounds of an instance; what is decided beside candidate, micro-batches, schedule and stages changes none.

    Attributes:
        instance: the problem.
    """

    instance: Instance
    _compute: dict[int, tuple[float, float]] = field(factory=dict)
    _weights: dict[Hashable, Array] = field(factory=dict)
    _known: dict[Hashable, Array] = field(factory=dict)

    def of(self, candidate: int, schedule: Schedule, micro_batches: int, counts: Sequence[int]) -> Array:
        """Seconds that no plan beats, for each of `counts` stages: they are equally long, or one has a single layer.

        Args:
            candidate: index of the candidate of all stages.
            schedule: the pipeline schedule.
            micro_batches: `M`.
            counts: numbers of stages.
        """
        weighted = (schedule.name, chunks_of(schedule), micro_batches, tuple(counts))
        key = (candidate, *weighted)
        if key not in self._known:
            if candidate not in self._compute:
                self._compute[candidate] = port_bounds(self.instance.candidates[candidate])
            if weighted not in self._weights:
                rows = [schedule.weights(micro_batches, count) for count in counts]
                self._weights[weighted] = numpy.array(rows, dtype=numpy.float64).reshape(-1, 2)
            (longest, total), weights = self._compute[candidate], self._weights[weighted]
            slowest = numpy.maximum(total / numpy.array(counts, dtype=numpy.float64), longest)
            self._known[key] = weights[:, 0] * slowest + weights[:, 1] * total
        return self._known[key]
