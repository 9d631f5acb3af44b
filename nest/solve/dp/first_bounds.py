"""Lower bounds on step times from compute and ports alone, before any stage is looked at."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy
from attrs import define, field
from numpy.typing import NDArray

from nest.instance import Array, Candidate, Instance, Schedule, Weights, chunks_of, weights_of
from nest.solve.dp.choices import part_rows


def compute_bounds(candidate: Candidate) -> tuple[float, float]:
    """Seconds per micro-batch from forward and backward alone: of the longest layer, and of all."""
    times = candidate.forward + candidate.backward
    return float(times.max()), float(times.sum())


def port_bounds(candidate: Candidate) -> tuple[float, float, float]:
    """The same, and how long the busiest port needs for all layers (PROBLEM.md section 4, Ports).

    The longest layer is one that computes or sends for longest.
    """
    longest, total = compute_bounds(candidate)
    if candidate.busy is None:
        return longest, total, 0.0
    return max(longest, float(candidate.busy.max())), total, float(candidate.busy.sum(axis=1).max())


@define(eq=False)
class ComputeBounds:
    """Lower bounds on the batch time from compute and ports alone, each worked out once for all that shares it.

    Attributes:
        instance: the problem.
    """

    instance: Instance
    _compute: dict[int, tuple[float, float, float]] = field(factory=dict)
    _parts: dict[int, tuple[float, float, float]] = field(factory=dict)
    _weights: dict[Hashable, Array] = field(factory=dict)
    _known: dict[Hashable, Array] = field(factory=dict)

    def of(
        self,
        candidate: int,
        schedule: Schedule,
        micro_batches: int,
        counts: Sequence[int],
        beside: tuple[float, float] = (0.0, 0.0),
    ) -> Array:
        """Seconds that no plan beats, for each of `counts` stages: they are equally long, or one has a single layer.

        Args:
            candidate: index of the candidate of all stages.
            schedule: the pipeline schedule.
            micro_batches: `M`.
            counts: numbers of stages.
            beside: seconds beside compute that all stages together take per micro-batch, and once per batch.
        """
        weighted = (schedule.name, chunks_of(schedule), micro_batches, tuple(counts))
        key = (candidate, *weighted, beside)
        if key not in self._known:
            if weighted not in self._weights:
                self._weights[weighted] = self.rows(schedule, micro_batches, counts)
            stages = numpy.array(counts, dtype=numpy.float64)
            self._known[key] = self.least(candidate, self._weights[weighted], stages, beside)
        return self._known[key]

    def rows(self, schedule: Schedule, micro_batches: int, counts: Sequence[int]) -> Array:
        """Weights of the step time, for each of `counts` stages; shape `(counts, 6)`.

        They are of the slowest stage, of the sum of all times, of the sums of their three parts, and of one of the
        first two.
        """
        weights = [weights_of(schedule, micro_batches, count) for count in counts]
        return numpy.array([_row(each) for each in weights], dtype=numpy.float64).reshape(-1, 6)

    def least(
        self, candidate: int, rows: Array, stages: NDArray[Any], beside: tuple[float, float] | tuple[Array, Array]
    ) -> Array:
        """As `of`, for the weights of any schedules and numbers of stages; a row for each of several `beside`."""
        if candidate not in self._compute:
            self._compute[candidate] = port_bounds(self.instance.candidates[candidate])
        (longest, total, ported), (more, sync) = self._compute[candidate], beside
        working = numpy.maximum(total + more, ported)
        bound: Array = rows[:, 0] * numpy.maximum(working / stages, longest) + rows[:, 1] * working + sync / stages
        if rows[:, 2:].any():
            bound += rows[:, 2:5] @ self._by_parts(candidate) + rows[:, 5] * more
        return bound

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
    """Of the slowest stage, of the sum of all times, of the sums of their three parts, and of one of the first two."""
    if weights.uniform:
        return weights.slowest, weights.forward, 0.0, 0.0, 0.0, 0.0
    parts = (weights.forward, weights.input_gradients, weights.weight_gradients)
    return weights.slowest, 0.0, *parts, max(min(parts[:2]), 0.0)
