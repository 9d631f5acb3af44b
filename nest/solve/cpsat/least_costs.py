"""What layers and tensors cost at least in a case, whatever its stages choose: the numbers of cheap bounds.

Every number forgets something that could only make plans dearer. So a plan below a step time keeps each limit that
follows from it, and where a limit cannot be kept there is no such plan (PROBLEM.md sections 3 and 4).
"""

from __future__ import annotations

from math import inf

import numpy
from attrs import define, field, frozen

from nest.instance import Candidate, Instance
from nest.solve.cpsat.bounds import levels
from nest.solve.cpsat.cases import Case, Mode
from nest.solve.cpsat.cuts import Floats
from nest.solve.cpsat.stages import data_parallel_groups, rows_of_state
from nest.tolerances import LIMIT_SLACK, SUM_ERROR


@frozen(eq=False)
class LeastCosts:
    """The least costs of a case.

    Attributes:
        work: seconds each layer takes per micro-batch. Shape `(layers,)`.
        sends: seconds each tensor takes over one boundary, latency aside. Shape `(tensors,)`.
        latency: seconds more, once for each boundary that anything crosses.
        held: bytes each layer holds on one device. Shape `(layers,)`.
        update: seconds of all layers' optimizer steps.
        room: bytes of a device for all this.
    """

    work: Floats
    sends: Floats
    latency: float
    held: Floats
    update: float
    room: float

    @property
    def total(self) -> float:
        """Seconds of all layers."""
        return float(self.work.sum())

    def slowest_limit(self, case: Case, target: float, total: float) -> float:
        """No stage of a plan below `target` takes longer per micro-batch, when all take `total` together at least."""
        slowest, weight = case.weights
        left = (target - self._once(case)) * (1 + LIMIT_SLACK)
        limits = [inf]
        if slowest > 0:
            limits.append((left - weight * total) / slowest)
        if weight > 0:
            # All others take the rest of the sum, and the slowest is at least their mean.
            limits.append((left - slowest * total / case.stages) / weight)
        return min(limits)

    def total_limit(self, case: Case, target: float, total: float) -> float:
        """All stages of a plan below `target` take no longer together, when they take `total` at least."""
        slowest, weight = case.weights
        left = (target - self._once(case)) * (1 + LIMIT_SLACK)
        # The slowest stage is at least the mean.
        least = max(float(self.work.max(initial=0.0)), total / case.stages)
        limits = [left / (weight + slowest / case.stages)] if weight + slowest > 0 else [inf]
        if weight > 0:
            limits.append((left - slowest * least) / weight)
        return min(limits)

    def step_time(self, case: Case, total: float) -> float:
        """Seconds no plan is below whose stages take `total` together at least."""
        slowest = max(float(self.work.max(initial=0.0)), total / case.stages)
        return (case.weights[0] * slowest + case.weights[1] * total + self._once(case)) * (1 - SUM_ERROR)

    def _once(self, case: Case) -> float:
        """Seconds the longest optimizer step takes: no less than the mean."""
        return self.update / case.stages


@define
class LeastCostsBook:
    """Least costs by case; cases that differ in their number of stages alone share them."""

    instance: Instance
    _known: dict[object, LeastCosts] = field(factory=dict)

    def of(self, case: Case) -> LeastCosts:
        """The least costs of a case."""
        key = (case.candidates, case.modes, case.replicas, case.rank_order, case.widest, case.zero_degree)
        if key not in self._known:
            self._known[key] = _least_costs(self.instance, case)
        return self._known[key]


def _least_costs(instance: Instance, case: Case) -> LeastCosts:
    cluster, used = instance.cluster, list(zip(case.candidates, case.modes, strict=True))
    each = [_held_and_update(instance, case, index, mode) for index, modes in used for mode in modes]
    possible = [cluster.levels[level] for level in levels(instance, case)]
    widest = max((level.bandwidth for level in possible), default=inf)
    sizes = numpy.minimum.reduce([instance.candidates[index].tensor_bytes for index, _ in used])
    return LeastCosts(
        work=numpy.minimum.reduce([_work(instance.candidates[index], mode) for index, modes in used for mode in modes]),
        sends=sizes / widest,
        latency=min((level.latency for level in possible), default=0.0),
        held=numpy.minimum.reduce([held for held, _ in each]),
        update=min(update for _, update in each),
        room=cluster.memory * (1 + LIMIT_SLACK) - cluster.reserve,
    )


def _work(candidate: Candidate, mode: Mode) -> Floats:
    return candidate.forward + candidate.backward + candidate.mode(mode[0]).extra


def _held_and_update(instance: Instance, case: Case, index: int, mode: Mode) -> tuple[Floats, float]:
    """Bytes of each layer with one micro-batch in flight, and seconds of all optimizer steps (the table of ZeRO)."""
    candidate, (recompute, zero) = instance.candidates[index], mode
    kept, total = instance.space.effective_zero(zero), 0.0
    held = candidate.mode(recompute).first
    for group, ranks in zip(candidate.state, data_parallel_groups(instance, case, index), strict=True):
        rows = rows_of_state(group)
        held = held + rows["weights"] / (ranks.shard_size if zero == 3 else 1)
        held = held + rows["gradients"] / (ranks.shard_size if kept >= 2 else 1)
        held = held + rows["optimizer"] / (ranks.shard_size if zero >= 1 else 1)
        total += float(rows["update"].sum()) / (ranks.shard_size if zero else 1)
    return held, total
