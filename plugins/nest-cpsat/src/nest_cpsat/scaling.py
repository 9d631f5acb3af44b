"""Conversion of floats to integers, with an error bound (PROBLEM.md section 5: no plan is better by more than 1e-6).

Seconds become ticks, rounded down term by term, and so do weights. Hence a plan's integer step time never exceeds its
real one: every plan truly better than the limit is a plan of the integer model, and if that has none, there is none.
Conversely, the integer step time of a plan within the limit is below the real one by at most `Scale.error`.
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
"""Largest coefficient. CP-SAT 9.15 can be wrong with coefficients above 2**31: with nine variables and coefficients
around 2**36, 52 of 400 random models got a wrong verdict; with coefficients up to 2**30 and sums of any size, none
(docs/explanation/verify.md)."""

PRECISION = 2**29  # Ticks of the longest stage time within the limit, and of an optimizer step as long as a batch.
FINEST_PARTS = 2**20  # Finest part of which weights are exact multiples; those of known schedules are.
LONGEST = 2**40  # Ticks of stage time without a limit on the step time: above the sum of everything cut off.
TERMS = 3  # Terms of a stage's time rounded down separately: the stage itself, arriving and returning messages.

WHOLE = 1e-14
"""Relative deviation of a weight from a fraction that it stands for, such as 1/3 in floating point. The limit is
rounded up by a hundred times as much, so nothing is lost."""

LARGEST_WEIGHT = 2**24  # Largest integer weight, so that sums over 256 stages fit 64 bits.


@frozen
class Scale:
    """Conversion of seconds to integers."""

    tick: float  # Seconds of one tick of stage time.
    slowest: int  # Weight of the slowest stage (`A * parts`, rounded down).
    total: int  # Weight of the sum (`B * parts`, rounded down); with unequal weights, of the part that ports add.
    sync: int  # Weight of time per batch, counted in ticks of `tick / parts * sync` seconds.
    parts: int  # The step time is counted in ticks of `tick / parts` seconds.
    error: float  # Most seconds by which an integer step time within the limit is below the real one.

    def ticks(self, seconds: float) -> int:
        """Stage time in ticks, rounded down against floating-point error, and cut off at `LARGEST_COEFFICIENT`."""
        return min(max(floor(seconds * (1 - SUM_ERROR) / self.tick), 0), LARGEST_COEFFICIENT)

    def sync_ticks(self, seconds: float) -> int:
        """Time per batch in ticks, rounded down and cut off in the same way."""
        return min(max(floor(seconds * (1 - SUM_ERROR) / self.tick * self.parts / self.sync), 0), LARGEST_COEFFICIENT)

    def weighed_ticks(self, weight: float, seconds: float) -> int:
        """Weighted part of the sum, in ticks of time per batch, rounded down."""
        return self.sync_ticks(weight * seconds)

    def covering_ticks(self, seconds: float) -> int:
        """Time per batch in ticks, rounded up and never cut off: safe to subtract."""
        return max(ceil(seconds * (1 + SUM_ERROR) / self.tick * self.parts / self.sync), 0)

    def weight(self, of: float) -> int:
        """Integer weight of stage time, rounded down."""
        return floor(of * self.parts * (1 + WHOLE))

    def limit(self, seconds: float) -> int:
        """Limit on the step time, rounded up."""
        return ceil(seconds * (1 + SUM_ERROR) / self.tick * self.parts)

    def seconds(self, batch_ticks: float) -> float:
        """Lower bound (s) on real step times of so many ticks."""
        return batch_ticks * self.tick / self.parts * (1 - 2 * SUM_ERROR)


Limit = tuple[Scale, int]  # Scale of a case, and its integer limit on the step time.


def largest_slowest(scale: Scale, limit: int) -> int:
    """Most ticks of the slowest stage of a plan within the limit; `LONGEST` without weight."""
    return limit // scale.slowest if scale.slowest else LONGEST


def least_weight(weights: Weights) -> float:
    """Least that a second of a stage adds to the sum, whatever it is spent on."""
    return min(least_compute_weight(weights), weights.arriving, weights.returning)


def least_compute_weight(weights: Weights) -> float:
    """Least that a second of compute adds to the sum.

    Weight gradients take no longer than input gradients (`Candidate.weight_gradients`). So the cheapest second is one
    of forward passes, of input gradients, or half of these and half of weight gradients.
    """
    inputs = weights.input_gradients
    return min(weights.forward, inputs, (inputs + weights.weight_gradients) / 2)


def scale(weights: Weights, stages: int, batch_time: float, terms: int, *, apart: bool = False) -> Scale:
    """Scale of a case.

    Args:
        stages: `s`.
        batch_time: largest limit that will be set, in seconds.
        terms: terms of a stage's time that are rounded down separately.
        apart: each stage's part of the sum is rounded down separately, in ticks of time per batch.
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
    """Least factor that makes the weights integers, if small."""
    finest = max(min(FINEST_PARTS, floor(LARGEST_WEIGHT / max(*weights, 1.0))), 1)
    near = [Fraction(weight).limit_denominator(finest) for weight in weights]
    common = lcm(*(fraction.denominator for fraction in near))
    exact = all(abs(fraction - weight) <= WHOLE * weight for fraction, weight in zip(near, weights, strict=True))
    return common if exact and common <= finest else finest


def floors(values: NDArray[numpy.float64], unit: float) -> list[int]:
    """Round down to whole units, cut off above any limit."""
    return [int(min(v, LARGEST_COEFFICIENT)) for v in numpy.floor(values * (1 - SUM_ERROR) / unit)]
