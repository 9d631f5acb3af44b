"""Floats to integers, with an error bound (PROBLEM.md section 5: no plan is better by more than 1e-6 relative).

Seconds are counted in ticks and rounded down, term by term, and so are the weights. Hence a plan's integer
step time never exceeds its real one: a plan that is truly better than the limit is one of the integer model's plans,
and where the model has none, there is none. The other way round the integer step time of a plan that keeps the limit
falls short of the real one by `Scale.error` at most.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor, lcm

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.instance import Weights
from nest.tolerances import SUM_ERROR

LARGEST_COEFFICIENT = 2**30
"""No coefficient is larger. CP-SAT 9.15 can be wrong where some exceed 2**31: of 400 random models of nine variables
with coefficients around 2**36 it called some infeasible that are not, or gave a false optimum, in 52; with coefficients
up to 2**30, and sums of any size, in none (docs/explanation/verify.md)."""

PRECISION = 2**29
"""Ticks of the longest time that a stage can have within the limit, and of an optimizer step as long as a batch."""

FINEST_PARTS = 2**20
"""Weights are kept exactly where they are multiples of a part that is no finer; those of known schedules are."""

LONGEST = 2**40
"""Ticks of stage time where no limit on the step time limits it: more than all that is cut off adds up to."""

TERMS = 3
"""Numbers rounded down on their own in a stage's time: the stage itself, what arrives and what returns."""

WHOLE = 1e-14
"""Share by which a weight may miss a fraction and still be taken for it, as 1/3 in floating point does. The limit is
rounded up by a hundred times as much, so nothing is lost."""

LARGEST_WEIGHT = 2**24
"""Weights are split into parts as long as they stay below this, so that sums over 256 stages stay within 64 bits."""


@frozen
class Scale:
    """How seconds become integers.

    Attributes:
        tick: seconds of one tick of stage time.
        slowest: integer weight of the slowest stage (`A * parts`, rounded down).
        total: integer weight of the sum (`B * parts`, rounded down); of weights that differ, of what ports add to it.
        sync: integer weight of what happens once per batch, counted in ticks of `tick / parts * sync` seconds.
        parts: the step time is counted in ticks of `tick / parts` seconds.
        error: seconds by which the integer step time of a plan within the limit can fall short of its real one.
    """

    tick: float
    slowest: int
    total: int
    sync: int
    parts: int
    error: float

    def ticks(self, seconds: float) -> int:
        """Stage time in ticks, rounded down so that floating point cannot have rounded it up.

        What exceeds any limit is cut off at `LARGEST_COEFFICIENT`, and still does.
        """
        return min(max(floor(seconds * (1 - SUM_ERROR) / self.tick), 0), LARGEST_COEFFICIENT)

    def sync_ticks(self, seconds: float) -> int:
        """Time once per batch, rounded down and cut off in the same way."""
        return min(max(floor(seconds * (1 - SUM_ERROR) / self.tick * self.parts / self.sync), 0), LARGEST_COEFFICIENT)

    def weighed_ticks(self, weight: float, seconds: float) -> int:
        """What seconds add to the sum with a weight, in ticks of what happens once per batch, rounded down."""
        return self.sync_ticks(weight * seconds)

    def covering_ticks(self, seconds: float) -> int:
        """Time once per batch, rounded up and never cut off: what may be taken away from another."""
        return max(ceil(seconds * (1 + SUM_ERROR) / self.tick * self.parts / self.sync), 0)

    def weight(self, of: float) -> int:
        """An integer weight of stage time, rounded down."""
        return floor(of * self.parts * (1 + WHOLE))

    def limit(self, seconds: float) -> int:
        """A limit on the step time, rounded up."""
        return ceil(seconds * (1 + SUM_ERROR) / self.tick * self.parts)

    def seconds(self, batch_ticks: float) -> float:
        """A step time in seconds that no real one with so many ticks is below."""
        return batch_ticks * self.tick / self.parts * (1 - 2 * SUM_ERROR)


Limit = tuple[Scale, int]
"""The scale of a case, and its limit on the step time in integers."""


def largest_slowest(scale: Scale, limit: int) -> int:
    """Ticks that the slowest stage of a plan within the limit takes at most; where nothing weighs it, any."""
    return limit // scale.slowest if scale.slowest else LONGEST


def least_weight(weights: Weights) -> float:
    """What a second of a stage adds to the sum at least, whatever it is spent on."""
    return min(least_compute_weight(weights), weights.arriving, weights.returning)


def least_compute_weight(weights: Weights) -> float:
    """What a second of compute adds to the sum at least.

    Gradients of weights take no longer than those of inputs (`Candidate.weight_gradients`). So the cheapest second is
    one of forward passes, of gradients of inputs, or half of these with half of gradients of weights.
    """
    inputs = weights.input_gradients
    return min(weights.forward, inputs, (inputs + weights.weight_gradients) / 2)


def scale(weights: Weights, stages: int, batch_time: float, terms: int, *, apart: bool = False) -> Scale:
    """The scale of a case.

    Args:
        weights: of the schedule.
        stages: `s`.
        batch_time: seconds; the largest limit that will be set.
        terms: numbers that are rounded down on their own and make up one stage's time.
        apart: whether what each stage adds to the sum is rounded down by itself, in ticks once per batch.
    """
    pair = weights.slowest, weights.waiting
    parts = _parts((*pair, weights.forward, weights.input_gradients, weights.arriving, weights.returning))
    slowest, total = (floor(weight * parts * (1 + WHOLE)) for weight in pair)
    # Where nothing weighs a stage's time, whatever it is, its ticks only serve what is counted beside.
    heaviest = max(weights.slowest, least_weight(weights)) or 1.0
    heaviest = max(heaviest, 1 / FINEST_PARTS)
    # Within the limit no stage takes longer than the batch over the heavier weight.
    tick = batch_time / heaviest / PRECISION
    sync = max(floor(batch_time / tick * parts / PRECISION), 1)
    # What each weight lost, times what it weighs: neither `max t` nor `sum t` exceeds the step time over its weight.
    lost = sum(
        max(1 - bound / (weight * parts), 0.0)
        for bound, weight in zip((slowest, total), pair, strict=True)
        if weight > 0
    )
    spread, once = weights.slowest + weights.waiting * stages, 1 + stages * apart
    error = spread * terms * tick + (once * terms * sync + 2) * tick / parts + batch_time * (lost + 4 * SUM_ERROR)
    return Scale(tick, slowest, total, sync, parts, error)


def _parts(weights: Sequence[float]) -> int:
    """The least number that makes the weights whole, where it is small."""
    finest = max(min(FINEST_PARTS, floor(LARGEST_WEIGHT / max(*weights, 1.0))), 1)
    near = [Fraction(weight).limit_denominator(finest) for weight in weights]
    common = lcm(*(fraction.denominator for fraction in near))
    exact = all(abs(fraction - weight) <= WHOLE * weight for fraction, weight in zip(near, weights, strict=True))
    return common if exact and common <= finest else finest


def floors(values: NDArray[numpy.float64], unit: float) -> list[int]:
    """Whole units, rounded down; what exceeds any limit is cut off, and still does."""
    return [int(min(v, LARGEST_COEFFICIENT)) for v in numpy.floor(values * (1 - SUM_ERROR) / unit)]
