"""Lower bounds on step times from compute and ports alone, before any stage is looked at."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy
from attrs import define, field
from numpy.typing import NDArray

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
class ShareOut:
    """What the slowest of some stages takes at least, as each layer lies on one stage, whichever that is.

    Of the `kp + 1` longest layers one of `p` stages has `k + 1`, by the pigeonhole principle, which take no less than
    the shortest `k + 1` of them (Dell'Amico and Martello, ORSA J. Computing 7(2), 1995, their bound L2 for identical
    machines).

    Attributes:
        layers: how many there are.
    """

    layers: int
    _first: NDArray[numpy.int64] = field(init=False)
    _behind: NDArray[numpy.int64] = field(init=False)
    _starts: NDArray[numpy.int64] = field(init=False)

    def __attrs_post_init__(self) -> None:
        each = [numpy.arange((self.layers - 1) // stages + 1) for stages in range(1, self.layers + 1)]
        times = numpy.concatenate(each)
        sizes = numpy.array([len(some) for some in each])
        ends = times * numpy.arange(1, self.layers + 1).repeat(sizes) + 1
        self._first, self._behind, self._starts = ends - times - 1, ends, sizes.cumsum() - sizes

    def slowest(self, seconds: Array) -> Array:
        """Seconds of the slowest of 1 to `layers` stages at least, by those of the layers. Shape `(layers,)` both."""
        sums = numpy.concatenate([[0.0], numpy.sort(seconds)[::-1].cumsum()])
        most = numpy.maximum.reduceat(sums[self._behind] - sums[self._first], self._starts)
        found: Array = most - SUM_ERROR * sums[-1]
        return found


@define(eq=False)
class ComputeBounds:
    """Lower bounds on the batch time from compute and ports alone, each worked out once for all that shares it.

    Attributes:
        instance: the problem.
    """

    instance: Instance
    _compute: dict[int, tuple[float, float, float]] = field(factory=dict)
    _share_out: list[ShareOut] = field(factory=list)
    _slowest: dict[int, Array] = field(factory=dict)
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
        """Seconds that no plan beats, for each of `counts` stages: they are equally long, or share out layers unevenly.

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
            stages = numpy.array(counts, dtype=numpy.int64)
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
        slowest = numpy.maximum(self.longest_compute(candidate).take(stages - 1, mode="clip"), longest)
        bound: Array = rows[:, 0] * numpy.maximum(working / stages, slowest) + rows[:, 1] * working + sync / stages
        if rows[:, 2:].any():
            bound += rows[:, 2:5] @ self._by_parts(candidate) + rows[:, 5] * more
        return bound

    def longest_compute(self, candidate: int) -> Array:
        """Seconds per micro-batch that the slowest of 1, 2, ... stages computes at least. Shape `(layers,)`.

        Layers that no cut may part are one.
        """
        if candidate not in self._slowest:
            used, home = self.instance.candidates[candidate], self._homes()
            seconds = numpy.bincount(home, used.forward + used.backward).astype(numpy.float64)
            if not self._share_out:
                self._share_out.append(ShareOut(len(seconds)))
            self._slowest[candidate] = self._share_out[0].slowest(seconds)
        return self._slowest[candidate]

    def _homes(self) -> NDArray[numpy.int64]:
        """Which of the groups that no cut may part each layer is of; others are groups of their own."""
        home = numpy.arange(len(self.instance.graph.layers))
        for group in self.instance.space.together:
            for layer in group:
                home[home == home[layer]] = home[group[0]]
        return numpy.unique(home, return_inverse=True)[1]

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
