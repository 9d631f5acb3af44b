"""Lower bounds on plans from compute and ports alone, for any contents of stages."""

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
    """Seconds per micro-batch of the longest layer, of all compute, and of the busiest port for all layers.

    The longest layer is one that computes or sends for longest (PROBLEM.md section 4, Ports).
    """
    times = candidate.forward + candidate.backward
    longest, total = float(times.max()), float(times.sum())
    if candidate.busy is None:
        return longest, total, 0.0
    return max(longest, float(candidate.busy.max())), total, float(candidate.busy.sum(axis=1).max())


@define(eq=False, repr=False)
class ShareOut:
    """Lower bound on the slowest of some stages, for any assignment of layers to stages.

    One of `p` stages has `k + 1` of the `kp + 1` longest layers, by the pigeonhole principle, which take at least the
    shortest `k + 1` of them (Dell'Amico and Martello, ORSA J. Computing 7(2), 1995, bound L2 for identical machines).
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
        """Lower bound (s) on the slowest of 1 to `layers` stages, from the layers' seconds. Shape `(layers,)` both."""
        sums = numpy.concatenate([[0.0], numpy.sort(seconds)[::-1].cumsum()])
        most = numpy.maximum.reduceat(sums[self._behind] - sums[self._first], self._starts)
        found: Array = most - SUM_ERROR * sums[-1]
        return found


def apart(candidates: Sequence[int]) -> tuple[dict[int, int], NDArray[numpy.int64]]:
    """Distinct candidates with their places, and the place of each plan's candidate. Shape `(plans,)`."""
    used = {index: place for place, index in enumerate(dict.fromkeys(candidates))}
    return used, numpy.array([used[index] for index in candidates])


@define(eq=False, repr=False, slots=False)
class ComputeBounds:
    """Lower bounds on the step time from compute and ports alone, each computed once."""

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
        """Lower bound (s) for each of `counts` stages, equally long or with layers shared out unevenly.

        Args:
            micro_batches: `M`.
            beside: seconds beside compute of all stages together, per micro-batch and per batch.
        """
        key = (candidate, schedule.name, chunks_of(schedule), micro_batches, tuple(counts), beside)
        if key not in self._known:
            rows = self.rows_of(schedule, micro_batches, counts)
            self._known[key] = self.least(candidate, rows, numpy.array(counts, dtype=numpy.int64), beside)
        return self._known[key]

    def rows_of(self, schedule: Schedule, micro_batches: int, counts: Sequence[int]) -> Array:
        """Same as `rows`, cached."""
        key = (schedule.name, chunks_of(schedule), micro_batches, tuple(counts))
        return once(self._weights, key, lambda: self.rows(schedule, micro_batches, counts))

    def rows(self, schedule: Schedule, micro_batches: int, counts: Sequence[int]) -> Array:
        """Weights of the step time for each of `counts` stages; shape `(counts, 6)`.

        Of the slowest stage, of the sum of all times, of the sums of their three parts, and of one of the first two.
        """
        weights = [weights_of(schedule, micro_batches, count) for count in counts]
        return numpy.array([_row(each) for each in weights], dtype=numpy.float64).reshape(-1, 6)

    def least(
        self, candidate: int, rows: Array, stages: NDArray[Any], beside: tuple[Array | float, Array | float]
    ) -> Array:
        """Same as `of` for weights of any schedules and numbers of stages; a row for each of several `beside`."""
        return self.least_each((candidate,), numpy.zeros(len(stages), dtype=numpy.int64), rows, stages, beside)

    def least_each(
        self,
        candidates: Sequence[int],
        used: NDArray[numpy.int64],
        rows: Array,
        stages: NDArray[Any],
        beside: tuple[Array | float, Array | float],
    ) -> Array:
        """Same as `least`, each for the candidate at its place among `candidates`."""
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
        """Same as `port_bounds`, cached."""
        return once(self._compute, candidate, lambda: port_bounds(self.instance.candidates[candidate]))

    def longest_compute(self, candidate: int) -> Array:
        """Lower bound on the compute (s per micro-batch) of the slowest of 1, 2, ... stages. Shape `(layers,)`.

        Layers that no cut may separate count as one.
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
        """Group of each layer; layers that no cut may separate share one."""
        home = numpy.arange(len(self.instance.graph.layers))
        for group in self.instance.space.together:
            for layer in group:
                home[home == home[layer]] = home[group[0]]
        return numpy.unique(home, return_inverse=True)[1]

    def _by_parts(self, candidate: int) -> tuple[float, float, float]:
        """Seconds per micro-batch of all layers: forward passes, input gradients and weight gradients."""
        if candidate not in self._parts:
            rows = part_rows(self.instance.candidates[candidate])
            forward, inputs, weights = (float(row.sum()) for row in rows)
            self._parts[candidate] = forward, inputs, weights
        return self._parts[candidate]

    def total_of(self, candidate: int) -> Callable[[Weights], float]:
        """Function from weights to the least part of the sum over stages, from compute alone, in seconds."""
        total, parts = self.whole(candidate)[1], self._by_parts(candidate)

        def weighed(weights: Weights) -> float:
            return weights.forward * total if weights.uniform else float(weights.of_parts(*parts))

        return weighed


def _row(weights: Weights) -> tuple[float, ...]:
    """Weights of the slowest stage, of the sum of times, of the sums of their parts, and of one of the first two."""
    if weights.uniform:
        return weights.slowest, weights.forward, 0.0, 0.0, 0.0, 0.0
    parts = (weights.forward, weights.input_gradients, weights.weight_gradients)
    return weights.slowest, 0.0, *parts, max(min(parts[:2]), 0.0)
