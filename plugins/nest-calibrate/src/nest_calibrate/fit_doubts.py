"""Doubts about a fit: no improvement, coefficients at their bounds, and coefficients without data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isclose
from statistics import fmean

import numpy
from attrs import frozen

from nest.units import listed, percent
from nest_calibrate.devices import Calibrated, Evidence, untold
from nest_calibrate.lines import Doubt

AT_BOUND = 1e-3
"""Relative distance to a bound at which a coefficient of three digits counts as on it."""


@frozen
class Fitted:
    """A coefficient, what was believed of it before, and the least and the most it can be."""

    name: str
    value: float
    believed: float
    low: float
    high: float


def at_bounds(fitted: Iterable[Fitted]) -> list[str]:
    """Of coefficients those that measurements took to a bound, told with it."""
    return [
        f"{each.name} ({bound:.3g}, the {word} it can be)"
        for each in fitted
        for bound, word in ((each.low, "least"), (each.high, "most"))
        if isclose(each.value, bound, rel_tol=AT_BOUND) and not isclose(each.believed, bound, rel_tol=AT_BOUND)
    ]


def doubt_coefficients(what: str, bound: Sequence[str], untold: Sequence[str], doubt: Doubt) -> None:
    """Tell of coefficients of `what` that are at their bounds, and of those that measurements do not determine."""
    if bound:
        doubt(f"{what}: the fit hits its limits: {', '.join(bound)}. The measurements likely contain another effect.")
    if untold:
        doubt(f"{what}: these measurements do not determine {', '.join(untold)}; the fit keeps the starting values.")


def doubt_better(what: str, before: float, after: float, doubt: Doubt) -> None:
    """Tell where a fit's error is not below that before, both relative; `what` says which error."""
    if after >= before:
        doubt(
            f"No improvement: {what} is {percent(after)} with the fit and {percent(before)} without it. Do not use "
            "the fit: measure more runs."
        )


def alone(kind: str, names: Sequence[str]) -> str:
    """Return that all measurements share one of `kind`, so that the fit's error for others is unknown."""
    return f"All measurements have one {kind} ({listed(names)}); the error for others is unknown."


def doubt_generations(
    found: Sequence[Calibrated], seen: Sequence[Evidence], values: Sequence[Mapping[str, float]], doubt: Doubt
) -> None:
    """Tell what is doubtful about generations `found` from what was `seen` on them, with `values` fitted to it.

    That is errors that are no smaller than before, coefficients at their bounds, and those that nothing tells of.
    """
    for one, evidence, fitted, nothing in zip(found, seen, values, untold(seen, values), strict=True):
        name = one.calibration.name
        before, after, validated = (
            fmean(numpy.abs(each / one.measured - 1).tolist()) for each in (one.before, one.after, one.validated)
        )
        families = sorted(set(one.families))
        if len(families) == 1:
            doubt(f"{name}: {alone('family', families)}")
            doubt_better(f"{name}: the mean error", before, after, doubt)
        else:
            doubt_better(f"{name}: the mean error, cross-validated,", before, validated, doubt)
        told = [each for each in evidence.unknowns if each.name not in nothing]
        bound = at_bounds(
            Fitted(each.name, fitted[each.name], each.range.prior, each.range.low, each.range.high) for each in told
        )
        doubt_coefficients(name, bound, nothing, doubt)
