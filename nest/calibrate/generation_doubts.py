"""What is doubtful about calibrated generations of devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

import numpy

from nest.calibrate.devices import Evidence, untold
from nest.calibrate.fit_doubts import Fitted, alone, at_bounds, doubt_better, doubt_coefficients
from nest.calibrate.lines import Doubt

if TYPE_CHECKING:
    from nest.calibrate.generations import Calibrated


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
