"""Robust least squares with bounds and priors, in numpy alone."""

from collections.abc import Callable

import numpy
from attrs import frozen

from nest.instance import Array

DIFFERENCE = 1e-6
"""Step of the differences that stand for derivatives: the root of what double precision resolves, or somewhat more."""

STIFFEST = 1e10
"""Damping at which steps no longer change anything."""

SETTLED = 1e-10
"""A step that lowers the objective by less, relatively, is usually the last."""

LEAST_DAMPING = 1e-12
"""Damping below which steps are those of Gauss and Newton, and share of it that coefficients without curvature get."""


UNTOLD = 0.9
"""Share of the variance believed before measuring beyond which what is left of it says that measurements do not
determine a coefficient: they took a twentieth off its standard deviation at most."""


@frozen(eq=False)
class Prior:
    """Prior of the coefficients, with bounds from `low` to `high`.

    Attributes:
        center: believed values; the search starts there.
        spread: how far off they may be (standard deviations); infinite where nothing is believed.
    """

    center: Array
    spread: Array
    low: Array
    high: Array


def robust_fit(
    residuals: Callable[[Array], Array],
    prior: Prior,
    scale: float,
    noise: float,
    starts: int = 1,
    steps: int = 100,
    settled: float = SETTLED,
) -> Array:
    """Coefficients that make residuals small, outliers counting less, and stay near the prior where nothing else tells.

    Minimises `sum 2 f^2 (sqrt(1 + (r/f)^2) - 1) / noise^2 + sum ((x - center)/spread)^2`, the soft L1 loss of scale `f`
    (Charbonnier et al., Deterministic edge-preserving regularization in computed imaging, IEEE TIP 1997), by
    Levenberg's and Marquardt's damped steps on iteratively reweighted residuals, kept inside the bounds; the best of
    several starts, the first at the center and the others drawn from the prior, always the same.

    Args:
        residuals: of the measurements, for coefficients.
        prior: start, beliefs and bounds.
        scale: of residuals beyond which growth is linear (`f`).
        noise: standard deviation expected of a residual, which weighs measurements against the prior.
        starts: how often to start.
        steps: most steps taken from each.
        settled: a step that lowers the objective by less, relatively, is the last.
    """
    drawn = numpy.random.default_rng(0).standard_normal((starts, len(prior.center)))
    drawn[0] = 0.0
    begins = prior.center + drawn * prior.spread
    ends = [_descend(residuals, each, prior, scale, noise, steps, settled) for each in begins]
    return min(ends, key=lambda end: end[0])[1]


def _descend(
    residuals: Callable[[Array], Array],
    start: Array,
    prior: Prior,
    scale: float,
    noise: float,
    steps: int,
    settled: float,
) -> tuple[float, Array]:
    """The objective and the coefficients that damped steps from `start` end at."""
    at = numpy.clip(start, prior.low, prior.high)
    damping = 1e-2
    residuals_here = residuals(at)
    value = objective(residuals_here, at, prior, scale, noise)
    for _ in range(steps):
        gradient, curvature = _normal_equations(residuals, residuals_here, at, prior, scale, noise)
        while damping < STIFFEST:
            trial = at + _step(gradient, curvature, damping, at, prior)
            there = residuals(trial)
            lower = objective(there, trial, prior, scale, noise)
            if lower < value:
                break
            damping *= 4.0
        else:
            break
        last = value - lower < settled * value
        at, residuals_here, value, damping = trial, there, lower, max(damping / 10.0, LEAST_DAMPING)
        if last:
            break
    return value, at


def objective(residuals: Array, at: Array, prior: Prior, scale: float, noise: float) -> float:
    """Objective of `robust_fit`; `residuals` are those of the coefficients `at`."""
    loss = 2.0 * scale**2 * (numpy.sqrt(1.0 + (residuals / scale) ** 2) - 1.0)
    return float(loss.sum() / noise**2 + (((at - prior.center) / prior.spread) ** 2).sum())


def belief_left(residuals: Callable[[Array], Array], at: Array, prior: Prior, scale: float, noise: float) -> Array:
    """Of each coefficient of a fit that ended `at`, the share of the variance believed that measurements leave.

    The variance is that of the normal distribution with the curvature of what `robust_fit` minimises (Laplace's
    approximation: MacKay, Information Theory, Inference, and Learning Algorithms, chapter 27); 1 where nothing tells of
    a coefficient. Arguments as there.
    """
    _, curvature = _normal_equations(residuals, residuals(at), at, prior, scale, noise)
    return numpy.asarray(numpy.diag(numpy.linalg.inv(curvature)) / prior.spread**2)


def _normal_equations(
    residuals: Callable[[Array], Array], residuals_here: Array, at: Array, prior: Prior, scale: float, noise: float
) -> tuple[Array, Array]:
    """Half the gradient of the objective, and the matrix of the linear equations of a step."""
    columns = []
    for index in range(len(at)):
        moved = at.copy()
        moved[index] += DIFFERENCE if at[index] + DIFFERENCE <= prior.high[index] else -DIFFERENCE
        columns.append((residuals(moved) - residuals_here) / (moved[index] - at[index]))
    slopes = numpy.stack(columns, axis=1)
    weights = 1.0 / numpy.sqrt(1.0 + (residuals_here / scale) ** 2) / noise**2
    beliefs = 1.0 / prior.spread**2
    gradient = slopes.T @ (weights * residuals_here) + beliefs * (at - prior.center)
    return gradient, slopes.T @ (weights[:, None] * slopes) + numpy.diag(beliefs)


def _step(gradient: Array, curvature: Array, damping: float, at: Array, prior: Prior) -> Array:
    """A damped step; coefficients that would leave their bounds stay at them, and the others move alone."""
    free = ~(((at <= prior.low) & (gradient > 0)) | ((at >= prior.high) & (gradient < 0)))
    step = numpy.zeros_like(at)
    if free.any():
        part = curvature[numpy.ix_(free, free)]
        damped = part + damping * numpy.diag(numpy.maximum(numpy.diag(part), LEAST_DAMPING))
        step[free] = -numpy.linalg.solve(damped, gradient[free])
    return numpy.clip(at + step, prior.low, prior.high) - at
