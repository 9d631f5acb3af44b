"""Lower bounds on what plans take by compute and ports alone, whatever their stages hold."""

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any

import numpy
from attrs import define, field
from numpy.typing import NDArray

from nest.instance import Array, Candidate, Instance, Schedule, Weights, chunks_of, weights_of
from nest.reuse import once
from nest.solve.dp.choices import part_rows
from nest.tolerances import SUM_ERROR


def port_bounds(candidate: Candidate) -> tuple[float, float, float]:
    """Seconds per micro-batch of the longest layer, that all compute, and that the busiest port needs for all layers.

    The longest layer is one that computes or sends for longest (PROBLEM.md section 4, Ports).
    """
    times = candidate.forward + candidate.backward
    longest, total = float(times.max()), float(times.sum())
    if candidate.busy is None:
        return longest, total, 0.0
    return max(longest, float(candidate.busy.max())), total, float(candidate.busy.sum(axis=1).max())


@define(eq=False, repr=False)
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


def apart(candidates: Sequence[int]) -> tuple[dict[int, int], NDArray[numpy.int64]]:
    """Candidates of plans, each once with its place, and for each plan the place of its own. Shape `(plans,)`."""
    used = {index: place for place, index in enumerate(dict.fromkeys(candidates))}
    return used, numpy.array([used[index] for index in candidates])


@define(eq=False, repr=False, slots=False)
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
        key = (candidate, schedule.name, chunks_of(schedule), micro_batches, tuple(counts), beside)
        if key not in self._known:
            rows = self.rows_of(schedule, micro_batches, counts)
            self._known[key] = self.least(candidate, rows, numpy.array(counts, dtype=numpy.int64), beside)
        return self._known[key]

    def rows_of(self, schedule: Schedule, micro_batches: int, counts: Sequence[int]) -> Array:
        """As `rows`, kept."""
        key = (schedule.name, chunks_of(schedule), micro_batches, tuple(counts))
        return once(self._weights, key, lambda: self.rows(schedule, micro_batches, counts))

    def rows(self, schedule: Schedule, micro_batches: int, counts: Sequence[int]) -> Array:
        """Weights of the step time, for each of `counts` stages; shape `(counts, 6)`.

        They are of the slowest stage, of the sum of all times, of the sums of their three parts, and of one of the
        first two.
        """
        weights = [weights_of(schedule, micro_batches, count) for count in counts]
        return numpy.array([_row(each) for each in weights], dtype=numpy.float64).reshape(-1, 6)

    def least(
        self, candidate: int, rows: Array, stages: NDArray[Any], beside: tuple[Array | float, Array | float]
    ) -> Array:
        """As `of`, for the weights of any schedules and numbers of stages; a row for each of several `beside`."""
        return self.least_each((candidate,), numpy.zeros(len(stages), dtype=numpy.int64), rows, stages, beside)

    def least_each(
        self,
        candidates: Sequence[int],
        used: NDArray[numpy.int64],
        rows: Array,
        stages: NDArray[Any],
        beside: tuple[Array | float, Array | float],
    ) -> Array:
        """As `least`, each of the candidate at such a place among `candidates`."""
        longest, total, ported = numpy.array([self.whole(each) for each in candidates])[used].T
        slowest = numpy.array([self.longest_compute(each) for each in candidates])
        slowest = numpy.maximum(slowest[used, numpy.minimum(stages, slowest.shape[1]) - 1], longest)
        more, sync = beside
        working = numpy.maximum(total + more, ported)
        with numpy.errstate(invalid="ignore"):
            bound: Array = rows[:, 0] * numpy.maximum(working / stages, slowest) + rows[:, 1] * working + sync / stages
            if rows[:, 2:].any():
                parts = numpy.array([self._by_parts(each) for each in candidates])[used]
                bound += (rows[:, 2:5] * parts).sum(axis=1) + rows[:, 5] * more
        # What takes for ever is no plan, even where a schedule weighs it with 0.
        bound[numpy.isnan(bound)] = numpy.inf
        return bound

    def whole(self, candidate: int) -> tuple[float, float, float]:
        """As `port_bounds`, kept."""
        return once(self._compute, candidate, lambda: port_bounds(self.instance.candidates[candidate]))

    def longest_compute(self, candidate: int) -> Array:
        """Seconds per micro-batch that the slowest of 1, 2, ... stages computes at least. Shape `(layers,)`.

        Layers that no cut may part are one.
        """
        if candidate not in self._slowest:
            used, home = self.instance.candidates[candidate], self._homes
            seconds = numpy.bincount(home, used.forward + used.backward).astype(numpy.float64)
            if not self._share_out:
                self._share_out.append(ShareOut(len(seconds)))
            self._slowest[candidate] = self._share_out[0].slowest(seconds)
        return self._slowest[candidate]

    @cached_property
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
        total, parts = self.whole(candidate)[1], self._by_parts(candidate)

        def weighed(weights: Weights) -> float:
            return weights.forward * total if weights.uniform else float(weights.of_parts(*parts))

        return weighed


def _row(weights: Weights) -> tuple[float, ...]:
    """Of the slowest stage, of the sum of all times, of the sums of their three parts, and of one of the first two."""
    if weights.uniform:
        return weights.slowest, weights.forward, 0.0, 0.0, 0.0, 0.0
    parts = (weights.forward, weights.input_gradients, weights.weight_gradients)
    return weights.slowest, 0.0, *parts, max(min(parts[:2]), 0.0)
