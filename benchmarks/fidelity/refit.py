"""Unknowns fitted again after a change of the cost model, for all folds at once and fast."""

from collections.abc import Sequence

import numpy

from benchmarks.fidelity.predictions import Array, Fold
from nest_calibrate.devices import (
    COMMON,
    LAST_GAIN,
    NOISE,
    OUTLIER,
    STEPS,
    Evidence,
    expected,
    predicted,
    values_of,
    weights,
)
from nest_calibrate.robust_fit import DIFFERENCE, Prior, objective, robust_fit

ROUNDS = 4
"""How often the line through a point is replaced by one through the point it led to."""


def refitted(seen: Evidence, folds: Sequence[Fold]) -> list[Fold]:
    """The folds with the unknowns of `seen` fitted again, starting from the values they have.

    What `nest_calibrate.devices.fit` minimises for one generation, coefficients common to all staying as they are, by
    steps on straight lines: predictions are taken to be linear in the logarithms of the unknowns, with the slopes at
    the mean of the folds' values for all folds and rounds. What was visited with the least true objective counts.
    """
    points = [numpy.log([fold.values[each.name] for each in seen.unknowns]) for fold in folds]
    slopes = slopes_of(seen, numpy.asarray(numpy.mean(points, axis=0)))
    return [
        fold if fold.held.all() else Fold(fold.held, values_of(seen, _descended(seen, fold, point, slopes)))
        for fold, point in zip(folds, points, strict=True)
    ]


def _descended(seen: Evidence, fold: Fold, start: Array, slopes: Array) -> Array:
    chosen, prior = ~fold.held, _held(seen, start)
    weight = weights([name for name, taken in zip(seen.families, chosen, strict=True) if taken])
    visited: list[tuple[float, Array]] = []
    at = start
    for _ in range(ROUNDS):
        here, point = _off(seen, at)[chosen], at
        visited.append((objective(weight * here, point, prior, OUTLIER, NOISE), point))

        def residuals(trial: Array, here: Array = here, point: Array = point) -> Array:
            return numpy.asarray(weight * (here + slopes[chosen] @ (trial - point)))

        at = robust_fit(residuals, prior, OUTLIER, NOISE, steps=STEPS, settled=LAST_GAIN)
    visited.append((objective(weight * _off(seen, at)[chosen], at, prior, OUTLIER, NOISE), at))
    return min(visited, key=lambda each: each[0])[1]


def _held(seen: Evidence, at: Array) -> Prior:
    """What is believed of the unknowns of one generation, those common to all being as they are `at`."""
    prior = expected(seen.unknowns)
    common = numpy.array([each.name in COMMON for each in seen.unknowns], dtype=bool)
    return Prior(
        center=numpy.where(common, at, prior.center),
        spread=prior.spread,
        low=numpy.where(common, at, prior.low),
        high=numpy.where(common, at, prior.high),
    )


def slopes_of(seen: Evidence, at: Array) -> Array:
    """How the logarithms of predictions change with those of unknowns. Shape `(measurements, unknowns)`."""
    base, prior = _off(seen, at), expected(seen.unknowns)
    steps = numpy.where(at + DIFFERENCE <= prior.high, DIFFERENCE, -DIFFERENCE)
    return numpy.stack([(_off(seen, at + step) - base) / step.sum() for step in numpy.diag(steps)], axis=1)


def _off(seen: Evidence, at: Array) -> Array:
    """Logarithms of predicted over measured."""
    return numpy.asarray(numpy.log(predicted(seen, values_of(seen, at)) / seen.seconds))
