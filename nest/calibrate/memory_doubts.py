"""What is doubtful about the error of memory estimates that was fitted to runs."""

from collections.abc import Mapping, Sequence
from math import exp, log

from nest.calibrate.fit_doubts import Fitted, alone, at_bounds, doubt_coefficients
from nest.calibrate.lines import Doubt
from nest.calibrate.memory import BOUNDS, MEDIAN_SPREAD, SPREAD_SPREAD, Verdict, surprise
from nest.calibrate.robust_fit import UNTOLD
from nest.catalogue import estimate_error
from nest.instance import EstimateError

BESIDE = 0.05
"""Step of the differences that stand for second derivatives, of logarithms."""


def doubt_memory(
    seen: Sequence[Verdict],
    found: EstimateError,
    others: Mapping[str, EstimateError],
    begun: EstimateError | None,
    doubt: Doubt,
) -> None:
    """Tell what is doubtful about the error `found` from what was `seen`.

    `others` are those found without each source, `begun` is what the fit began at, the catalogue's if left out.
    """
    begun = begun or estimate_error()
    if len(others) == 1:
        doubt(alone("source", list(others)))
    else:
        held = sum(surprise([each for each in seen if each.group == name], error) for name, error in others.items())
        if held >= surprise(seen, begun):
            doubt(
                "No better than before: what was seen of a source is no likelier with an error fitted to the other "
                "sources than with what the fit began at. What it began at serves as well."
            )
    doubt_memory_figures(seen, found, doubt, begun)


def doubt_memory_figures(
    seen: Sequence[Verdict], found: EstimateError, doubt: Doubt, begun: EstimateError | None = None
) -> None:
    """Tell of the median and the spread `found` which of them are at bounds, and of which nothing tells.

    `begun` is what the fit began at, the catalogue's if left out.
    """
    begun = begun or estimate_error()
    at = log(found.median), log(found.spread)
    names, beliefs = ("median", "spread"), (MEDIAN_SPREAD, SPREAD_SPREAD)
    untold = []
    for axis, (name, belief) in enumerate(zip(names, beliefs, strict=True)):
        below, here, above = (surprise(seen, _moved(at, axis, step)) for step in (-BESIDE, 0.0, BESIDE))
        curvature = max((below - 2 * here + above) / BESIDE**2, 0.0)
        if 1 / (1 + curvature * belief**2) > UNTOLD:
            untold.append(name)
    figures = zip(names, (found.median, found.spread), (begun.median, begun.spread), BOUNDS, strict=True)
    fitted = [Fitted(name, value, believed, exp(low), exp(high)) for name, value, believed, (low, high) in figures]
    bound = at_bounds(each for each in fitted if each.name not in untold)
    doubt_coefficients("needed over estimated memory", bound, untold, doubt)


def _moved(at: tuple[float, float], axis: int, step: float) -> EstimateError:
    median, spread = (exp(each + (step if axis == index else 0.0)) for index, each in enumerate(at))
    return EstimateError(median, spread)
