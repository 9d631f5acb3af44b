"""The cheapest bound: what the layers compute, with memory, transfers, gradient reduction and ports forgotten.

The slowest stage takes no less than the mean, and no less than the slowest layer.
"""

from collections.abc import Sequence

import numpy
from attrs import define, field, frozen

from nest.instance import Instance, Weights
from nest.solve.cpsat.cases import Case, rooms
from nest.solve.cpsat.cuts import Floats
from nest.tolerances import SUM_ERROR


@frozen
class _Sums:
    """What layers add up to at least, each where it takes least.

    Attributes:
        total: seconds of all.
        longest: seconds of the longest.
        added: what they add to the sum in the step time.
        share: what they are of the whole, each on the pool where that is least.
        speeds: of each pool, the share of the whole that it runs per second; none: there is one pool.
    """

    total: float
    longest: float
    added: float
    share: float
    speeds: tuple[float, ...]


@define
class ComputeBound:
    """The bound that needs the layers' times only."""

    instance: Instance
    _known: dict[tuple[int, tuple[str, ...], Weights], tuple[Floats, Floats]] = field(factory=dict)
    _sums: dict[object, _Sums] = field(factory=dict)

    def of(self, case: Case) -> float:
        """Seconds no plan of the case is below."""
        key = (case.candidates, case.modes, case.weights)
        if key not in self._sums:
            self._sums[key] = self._summed(case)
        sums = self._sums[key]
        slowest = max(sums.total / case.stages, sums.longest)
        if sums.speeds:
            slowest = max(slowest, sums.share / self._speed(case, sums.speeds))
        return (case.weights.slowest * slowest + sums.added) * (1 - SUM_ERROR)

    def _summed(self, case: Case) -> _Sums:
        every = [
            self._layers(candidate, tuple(dict.fromkeys(mode[0] for mode in modes)), case.weights)
            for candidate, modes in zip(case.candidates, case.modes, strict=True)
        ]
        fastest, weighed = (numpy.minimum.reduce(each) for each in zip(*every, strict=True))
        times = numpy.array([seconds for seconds, _ in every])
        whole = times.sum(axis=1)
        pooled = len(every) > 1 and self.instance.pools is not None and bool(whole.all())
        share = float((times / whole[:, None]).min(axis=0).sum()) if pooled else 0.0
        speeds = tuple((1 / whole).tolist()) if pooled else ()
        return _Sums(float(fastest.sum()), float(fastest.max()), float(weighed.sum()), share, speeds)

    def _speed(self, case: Case, speeds: Sequence[float]) -> float:
        """How much of all layers the stages run per second at most.

        A stage of `t` seconds runs `t / whole` of all layers, counted in the seconds that its pool takes for the whole;
        so counted, each layer is no less than its share where that is least. Each pool has a stage, and room for so
        many; the others are in the fastest that have room.
        """
        left, speed = case.stages - len(speeds), sum(speeds)
        held = rooms(self.instance, case.candidates, case.replicas)
        for each, room in sorted(zip(speeds, held, strict=True), reverse=True):
            further = min(left, room - 1)
            speed, left = speed + further * each, left - further
        return speed

    def _layers(self, candidate: int, modes: tuple[str, ...], weights: Weights) -> tuple[Floats, Floats]:
        """Seconds of each layer at least, and what it adds to the sum."""
        key = (candidate, modes, weights)
        if key not in self._known:
            used = self.instance.candidates[candidate]
            extra = numpy.minimum.reduce([used.mode(name).extra for name in modes])
            whole, found = used.forward + used.backward + extra, used.finding_weight_gradients
            weighed = weights.of_parts(used.forward, used.backward - found + extra, found)
            self._known[key] = whole, weights.forward * whole if weights.uniform else weighed
        return self._known[key]
