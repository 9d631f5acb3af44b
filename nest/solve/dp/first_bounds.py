"""Lower bounds on step times from compute and ports alone, before any stage is looked at."""

from collections.abc import Callable, Hashable, Sequence

import numpy
from attrs import define, field

from nest.instance import Array, Candidate, Instance, Schedule, Weights, chunks_of, weights_of
from nest.solve.dp.choices import part_rows


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
    """Lower bounds on the batch time from compute and ports alone, each worked out once for all that shares it."""

    instance: Instance
    _compute: dict[int, tuple[float, float]] = field(factory=dict)
    _parts: dict[int, tuple[float, float, float]] = field(factory=dict)
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
                said = [weights_of(schedule, micro_batches, count) for count in counts]
                rows = [_row(each) for each in said]
                self._weights[weighted] = numpy.array(rows, dtype=numpy.float64).reshape(-1, 5)
            (longest, total), weights = self._compute[candidate], self._weights[weighted]
            slowest = numpy.maximum(total / numpy.array(counts, dtype=numpy.float64), longest)
            self._known[key] = weights[:, 0] * slowest + weights[:, 1] * total
            if weights[:, 2:].any():
                self._known[key] += weights[:, 2:] @ self._by_parts(candidate)
        return self._known[key]

    def _by_parts(self, candidate: int) -> tuple[float, float, float]:
        """Seconds per micro-batch of all layers: of forward passes, gradients of inputs and those of weights."""
        if candidate not in self._parts:
            rows = part_rows(self.instance.candidates[candidate])
            forward, inputs, weights = (float(row.sum()) for row in rows)
            self._parts[candidate] = forward, inputs, weights
        return self._parts[candidate]

    def total_of(self, candidate: int) -> Callable[[Weights], float]:
        """What the sum over stages adds to the step at least, from compute alone, by what the parts weigh; seconds."""
        total, parts = compute_bounds(self.instance.candidates[candidate])[1], self._by_parts(candidate)

        def weighed(weights: Weights) -> float:
            return weights.forward * total if weights.uniform else float(weights.of_parts(*parts))

        return weighed


def _row(weights: Weights) -> tuple[float, ...]:
    """Of the slowest stage, of the sum of all times, and of the sums of their three parts."""
    if weights.uniform:
        return weights.slowest, weights.forward, 0.0, 0.0, 0.0
    return weights.slowest, 0.0, weights.forward, weights.input_gradients, weights.weight_gradients
