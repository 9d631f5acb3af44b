"""Least costs of layers and tensors in a case, whatever its stages choose: input of cheap bounds.

Every number drops something that could only make plans slower. So a plan below a step time keeps every limit that
follows from it, and an impossible limit proves that there is no such plan (PROBLEM.md sections 3 and 4).
"""

from __future__ import annotations

from math import inf

import numpy
from attrs import define, frozen

from nest.instance import Candidate, Instance, copies_of
from nest.reuse import remembered
from nest.tolerances import LIMIT_SLACK, SUM_ERROR
from nest_cpsat.cases import Case, Mode
from nest_cpsat.cuts import Floats
from nest_cpsat.first_blocks import pair_of
from nest_cpsat.placement import boundary_levels
from nest_cpsat.stages import data_parallel_groups, held_state, rows_of_state

BEYOND = 1e3  # Most that a layer counts as, in device memories: too much for any stage.


@frozen(eq=False)
class LeastCosts:
    """Least costs of a case."""

    work: Floats  # Seconds per micro-batch. Shape `(layers,)`.
    sizes: Floats  # Bytes. Shape `(tensors,)`.
    latency: Floats  # Seconds per message at each boundary, ends included. Shape `(stages + 1,)`.
    bandwidth: Floats  # Bytes per second. Shape `(stages + 1,)`.
    held: Floats  # Bytes on one device with one micro-batch in flight. Shape `(layers,)`.
    update: float  # Seconds of all layers' optimizer steps.
    rooms: Floats  # Upper limits on the sum of `held`. Shape `(stages,)`.

    def sends(self, boundary: int) -> Floats:
        """Seconds of each tensor over a boundary without latency. Shape `(tensors,)`."""
        seconds: Floats = self.sizes / self.bandwidth[boundary]
        return seconds

    @property
    def total(self) -> float:
        """Seconds of all layers."""
        return float(self.work.sum())

    def slowest_limit(self, case: Case, target: float, total: float) -> float:
        """Upper limit (s per micro-batch) on stages of plans below `target`, if all take at least `total`."""
        slowest, weight = case.least_weights
        left = (target - self._once(case)) * (1 + LIMIT_SLACK)
        limits = [inf]
        if slowest > 0:
            limits.append((left - weight * total) / slowest)
        if weight > 0:
            # All others take the rest of the sum, and the slowest is at least their mean.
            limits.append((left - slowest * total / case.stages) / weight)
        return min(limits)

    def total_limit(self, case: Case, target: float, total: float) -> float:
        """Upper limit (s) on all stages together in plans below `target`, if they take at least `total`."""
        slowest, weight = case.least_weights
        left = (target - self._once(case)) * (1 + LIMIT_SLACK)
        # The slowest stage is at least the mean.
        least = max(float(self.work.max(initial=0.0)), total / case.stages)
        limits = [left / (weight + slowest / case.stages)] if weight + slowest > 0 else [inf]
        if weight > 0:
            limits.append((left - slowest * least) / weight)
        return min(limits)

    def step_time(self, case: Case, total: float) -> float:
        """Lower bound (s) on plans whose stages take at least `total` together."""
        slowest = max(float(self.work.max(initial=0.0)), total / case.stages)
        largest, weight = case.least_weights
        return (largest * slowest + weight * total + self._once(case)) * (1 - SUM_ERROR)

    def _once(self, case: Case) -> float:
        """Lower bound (s) on the longest optimizer step: the mean."""
        return self.update / case.stages


@define(slots=False)
class LeastCostCache:
    """Least costs by case."""

    instance: Instance

    @remembered
    def of(self, case: Case) -> LeastCosts:
        """Least costs of a case."""
        return _least_costs(self.instance, case)


def _least_costs(instance: Instance, case: Case) -> LeastCosts:
    cluster = instance.cluster
    pairs = [dict.fromkeys((pair_of(recompute), zero) for recompute, zero in modes) for modes in case.modes]
    used = list(zip(case.candidates, pairs, strict=True))
    each = [_held_and_update(instance, case, index, mode) for index, modes in used for mode in modes]
    room = max(cluster.memory * (1 + LIMIT_SLACK) - cluster.reserve, 0.0)
    held = numpy.minimum.reduce([held for held, _ in each])
    more = numpy.minimum.reduce([instance.candidates[index].mode(mode[0]).more for index, own in used for mode in own])
    links = [[cluster.levels[level] for level in possible] for possible in boundary_levels(instance, case)]
    sizes = numpy.minimum.reduce([instance.candidates[index].tensor_bytes for index, _ in used])
    return LeastCosts(
        work=numpy.minimum.reduce([_work(instance.candidates[index], mode) for index, modes in used for mode in modes]),
        sizes=sizes,
        latency=numpy.array([min((level.latency for level in each), default=0.0) for each in links]),
        bandwidth=numpy.array([max((level.bandwidth for level in each), default=inf) for each in links]),
        held=numpy.minimum(held, room * BEYOND),
        update=min(update for _, update in each),
        rooms=numpy.array([room / _least_growth(case, stage, held, more) for stage in range(1, case.stages + 1)]),
    )


def _least_growth(case: Case, stage: int, held: Floats, more: Floats) -> float:
    """Least growth of any layer's bytes over one micro-batch in flight."""
    holding = (held > 0) & numpy.isfinite(held)
    grown = held[holding] + (case.in_flight(stage) - 1) * more[holding]
    return float((grown / held[holding]).min()) if holding.any() else 1.0


def _work(candidate: Candidate, mode: Mode) -> Floats:
    return candidate.forward + candidate.backward + candidate.mode(mode[0]).extra


def _held_and_update(instance: Instance, case: Case, index: int, mode: Mode) -> tuple[Floats, float]:
    """Bytes of each layer with one micro-batch in flight, and seconds of all optimizer steps (the table of ZeRO)."""
    candidate, (recompute, zero) = instance.candidates[index], mode
    kept, total = instance.space.effective_zero(zero), 0.0
    held = candidate.mode(recompute).first
    for group, ranks in zip(candidate.state, data_parallel_groups(instance, case, index), strict=True):
        rows = rows_of_state(group)
        held = held + copies_of(case.schedule) * held_state(rows, ranks.shard_size, kept)
        total += float(rows["update"].sum()) / (ranks.shard_size if zero else 1)
    return held, total
