"""Cheapest bound: compute alone, without memory, transfers, gradient reduction and ports.

The slowest stage takes at least the mean, and at least the slowest layer.
"""

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy
from attrs import define, field, frozen

from nest.instance import Instance, Weights
from nest.reuse import once
from nest.tolerances import SUM_ERROR
from nest_cpsat.cases import Case
from nest_cpsat.cuts import Floats
from nest_cpsat.families import Family, rooms
from nest_cpsat.first_blocks import pairs_of


@frozen(eq=False)
class _Sums:
    """Least compute of all layers."""

    total: float  # Seconds of all.
    longest: float  # Seconds of the longest.
    share: float  # Sum of the layers' shares of the whole, each on the pool where it is least.
    speeds: tuple[float, ...]  # Share of the whole that each pool runs per second; empty: one pool.
    # By candidate, seconds of forward passes, of input gradients with recomputation, and of weight gradients. Shape
    # `(3, layers)`.
    parts: tuple[Floats, ...]

    def added(self, weights: Weights) -> float:
        """Their part of the sum in the step time."""
        if weights.uniform:
            return weights.forward * self.total
        every = [weights.of_parts(*own) for own in self.parts]
        return float(numpy.minimum.reduce(every).sum())


@define
class ComputeBound:
    """Lower bound from layer times alone."""

    instance: Instance
    _known: dict[tuple[tuple[int, ...], tuple[tuple[str, ...], ...]], _Sums] = field(factory=dict)

    def of(self, case: Case) -> float:
        """Lower bound of a case in seconds."""
        sums = self._of_case(case)
        slowest = self._slowest(sums, case.candidates, case.replicas, case.stages)
        return float((case.weights.slowest * slowest + sums.added(case.weights)) * (1 - SUM_ERROR))

    def of_rows(self, family: Family) -> Floats:
        """Lower bound of each row of a family in seconds, for any modes. Shape `(rows,)`.

        A second of compute adds at least its smallest weight to the sum.
        """
        rows = family.rows
        names = {each: pairs_of(self.instance.recompute_names(each)) for each in family.candidates}
        usable = {each: own for each, own in names.items() if own}
        # On pools each candidate has a stage.
        if not usable or (self.instance.pools is not None and len(usable) < len(names)):
            return numpy.full(len(rows), inf)
        sums = self._summed(tuple(usable), tuple(usable.values()))
        slowest = self._slowest(sums, family.candidates, rows.replicas, rows.stages)
        bounds: Floats = (rows.slowest * slowest + rows.least * sums.total) * (1 - SUM_ERROR)
        return bounds

    def slowest_limit(self, case: Case, target: float) -> float:
        """Upper limit (s per micro-batch) on stages of plans of the case below `target`."""
        if case.weights.slowest <= 0:
            return inf
        left = target - self._of_case(case).added(case.weights) * (1 - SUM_ERROR)
        return left / case.weights.slowest * (1 + SUM_ERROR)

    def _of_case(self, case: Case) -> _Sums:
        names = tuple(pairs_of(mode[0] for mode in modes) for modes in case.modes)
        key = (case.candidates, names)
        return once(self._known, key, lambda: self._summed(*key))

    def _summed(self, candidates: tuple[int, ...], names: tuple[tuple[str, ...], ...]) -> _Sums:
        parts = tuple(self._parts(each, own) for each, own in zip(candidates, names, strict=True))
        times = numpy.array([own.sum(axis=0) for own in parts])
        fastest, whole = times.min(axis=0), times.sum(axis=1)
        pooled = len(candidates) > 1 and self.instance.pools is not None and bool(whole.all())
        share = float((times / whole[:, None]).min(axis=0).sum()) if pooled else 0.0
        speeds = tuple((1 / whole).tolist()) if pooled else ()
        return _Sums(float(fastest.sum()), float(fastest.max()), share, speeds, parts)

    def _parts(self, candidate: int, names: tuple[str, ...]) -> Floats:
        used = self.instance.candidates[candidate]
        extra = numpy.minimum.reduce([used.mode(name).extra for name in names])
        found = used.finding_weight_gradients
        return numpy.array([used.forward, used.backward - found + extra, found])

    def _slowest(self, sums: _Sums, candidates: Sequence[int], replicas: Any, stages: Any) -> Any:
        """Lower bound (s) on the slowest of so many stages, elementwise."""
        slowest = numpy.maximum(sums.total / stages, sums.longest)
        if sums.speeds:
            slowest = numpy.maximum(slowest, sums.share / self._speed(candidates, replicas, stages, sums.speeds))
        return slowest

    def _speed(self, candidates: Sequence[int], replicas: Any, stages: Any, speeds: Sequence[float]) -> Any:
        """Upper bound on the share of all layers that the stages run per second, elementwise.

        A stage of `t` seconds runs `t / whole` of all layers, by the time of its pool for the whole; each layer counts
        at least its smallest share. Each pool has at least one stage and limited room; the others use the fastest
        pools.
        """
        left, speed = stages - len(speeds), sum(speeds)
        held = rooms(self.instance, candidates, replicas)
        for each, room in sorted(zip(speeds, held, strict=True), key=lambda own: own[0], reverse=True):
            further = numpy.minimum(left, room - 1)
            speed, left = speed + further * each, left - further
        return speed
