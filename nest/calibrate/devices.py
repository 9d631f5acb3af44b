"""Devices fitted to what was measured on them: shares of roofs and coefficients, a generation at a time."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.calibrate.robust_fit import Prior, robust_fit
from nest.calibrate.unknowns import Unknown, calibration
from nest.catalogue import Calibration
from nest.spec import DeviceSpec

Array = NDArray[numpy.float64]

NOISE = 0.06
"""Relative error expected of a prediction: repeated runs of one plan differ by 3 to 5 % in the published data."""

OUTLIER = 0.06
"""Relative error beyond which a measurement counts less and less."""

STEPS = 30
"""Most steps of a fit."""

LAST_GAIN = 1e-5
"""What the last step of a fit gains at most, relatively: three digits of a coefficient need no more."""

DIGITS = 3
"""Significant digits of fitted numbers."""

Predict = Callable[[Mapping[str, DeviceSpec]], Array]
"""Predicted seconds of every measurement, on devices by name."""


@frozen(eq=False)
class Evidence:
    """What was measured on devices of one generation.

    Attributes:
        devices: with their published figures, by name.
        unknowns: what to find.
        predict: seconds of every measurement.
        seconds: measured. Shape `(measurements,)`.
        families: of each; those of one family are never fitted to and predicted at once.
    """

    devices: Mapping[str, DeviceSpec]
    unknowns: tuple[Unknown, ...]
    predict: Predict
    seconds: Array
    families: tuple[str, ...]


def weights(families: Sequence[str]) -> Array:
    """How much each measurement counts: a family of `n` counts as much as the root of `n` single ones.

    Those of one family share what no coefficient describes, so that more of them tell less and less that is new.
    """
    sizes = Counter(families)
    found = numpy.array([sizes[name] ** -0.25 for name in families])
    return numpy.asarray(found * numpy.sqrt(len(families) / (found**2).sum()))


def expected(evidence: Evidence) -> Prior:
    """What is believed of the logarithms of the unknowns, in their order."""
    ranges = [each.range for each in evidence.unknowns]
    return Prior(
        center=numpy.log([each.prior for each in ranges]),
        spread=numpy.array([each.spread for each in ranges]),
        low=numpy.log([each.low for each in ranges]),
        high=numpy.log([each.high for each in ranges]),
    )


def fit(evidence: Evidence, chosen: NDArray[numpy.bool_]) -> dict[str, float]:
    """The unknowns under which predictions of the `chosen` measurements come closest, by name.

    Robust least squares of the logarithm of predicted over measured, with a prior on the logarithm of each unknown.

    Args:
        evidence: all measurements.
        chosen: those to fit to. Shape `(measurements,)`.
    """
    families = [name for name, taken in zip(evidence.families, chosen, strict=True) if taken]
    weight, measured = weights(families), evidence.seconds[chosen]
    prior = expected(evidence)

    def residuals(logarithms: Array) -> Array:
        return numpy.asarray(weight * numpy.log(predicted(evidence, _values(evidence, logarithms))[chosen] / measured))

    found = robust_fit(residuals, prior, OUTLIER, NOISE, steps=STEPS, settled=LAST_GAIN)
    return _values(evidence, found, DIGITS)


def _values(evidence: Evidence, logarithms: Array, digits: int | None = None) -> dict[str, float]:
    """The unknowns by name; neither rounding nor the exponential takes one beyond what it can be."""
    found = zip(evidence.unknowns, numpy.exp(logarithms).tolist(), strict=True)
    rounded = ((each, value if digits is None else float(f"{value:.{digits}g}")) for each, value in found)
    return {each.name: min(max(value, each.range.low), each.range.high) for each, value in rounded}


def predicted(evidence: Evidence, values: Mapping[str, float]) -> Array:
    """Seconds of every measurement with `values` of the unknowns."""
    return predicted_with(evidence, calibration("", values))


def predicted_with(evidence: Evidence, known: Calibration) -> Array:
    """Seconds of every measurement with a calibration of the devices' generation."""
    return evidence.predict({name: known.on(device) for name, device in evidence.devices.items()})


def parts(families: Sequence[str], folds: int) -> NDArray[numpy.int64]:
    """The part that each measurement is held out with: families are dealt to `folds` parts in the order of names."""
    part = {name: index % folds for index, name in enumerate(sorted(set(families)))}
    return numpy.array([part[name] for name in families], dtype=numpy.int64)


def folded(evidence: Evidence, part: NDArray[numpy.int64]) -> Iterator[tuple[NDArray[numpy.bool_], dict[str, float]]]:
    """For each part of the measurements which it holds, and the unknowns fitted to all others.

    Where there are no others, what is expected has to do.

    Args:
        evidence: all measurements.
        part: that each is held out with. Shape `(measurements,)`.
    """
    for fold in sorted(set(part.tolist())):
        held = part == fold
        expected = {each.name: each.range.prior for each in evidence.unknowns}
        yield held, expected if held.all() else fit(evidence, ~held)


def cross_validated(evidence: Evidence, folds: int) -> Array:
    """Seconds of every measurement, predicted from a fit to other families only. Shape `(measurements,)`.

    Each fit begins at what is expected: to begin at a fit to all would let the families it is judged by have a say.

    Args:
        evidence: all measurements.
        folds: parts that the families are dealt to, in the order of their names.
    """
    found = numpy.zeros(len(evidence.families))
    for held, values in folded(evidence, parts(evidence.families, folds)):
        found[held] = predicted(evidence, values)[held]
    return found
