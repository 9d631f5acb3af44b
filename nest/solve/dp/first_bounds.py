"""Lower bounds on step times from compute and ports alone, before any stage is looked at."""

from collections.abc import Callable, Hashable, Sequence

import numpy
from attrs import define, field

from nest.instance import Array, Candidate, Instance, Schedule, Weights, chunks_of, weights_of
from nest.solve.dp.choices import part_rows
from nest.tolerances import SUM_ERROR


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
        hasty: whether a schedule asked so far claims a step in which the slowest stage works on less than all
            micro-batches.
    """

    instance: Instance
    hasty: bool = field(default=False, init=False)
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
            if candidate not in self._compute:
                self._compute[candidate] = port_bounds(self.instance.candidates[candidate])
            if weighted not in self._weights:
                said = [weights_of(schedule, micro_batches, count) for count in counts]
                works = (_works(each, micro_batches, count) for each, count in zip(said, counts, strict=True))
                self.hasty |= not all(works)
                self._weights[weighted] = numpy.array([_row(each) for each in said], dtype=numpy.float64).reshape(-1, 6)
            (longest, total, ported), weights = self._compute[candidate], self._weights[weighted]
            stages, (more, sync) = numpy.array(counts, dtype=numpy.float64), beside
            working = max(total + more, ported)
            bound = weights[:, 0] * numpy.maximum(working / stages, longest) + weights[:, 1] * working + sync / stages
            if weights[:, 2:].any():
                bound += weights[:, 2:5] @ self._by_parts(candidate) + weights[:, 5] * more
            self._known[key] = bound
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
    """Of the slowest stage, of the sum of all times, of the sums of their three parts, and of one of the first two."""
    if weights.uniform:
        return weights.slowest, weights.forward, 0.0, 0.0, 0.0, 0.0
    parts = (weights.forward, weights.input_gradients, weights.weight_gradients)
    return weights.slowest, 0.0, *parts, max(min(parts[:2]), 0.0)


def _works(weights: Weights, micro_batches: int, stages: int) -> bool:
    """Whether equal stages work on all micro-batches in a step, whatever part of their time gradients of weights take.

    That is at most as much as gradients of inputs (`Candidate.weight_gradients`).
    """
    parts = (weights.forward, weights.input_gradients, (weights.input_gradients + weights.weight_gradients) / 2)
    return weights.slowest + stages * min(parts) >= micro_batches * (1 - SUM_ERROR)
