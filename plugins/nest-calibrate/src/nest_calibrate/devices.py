"""Devices fitted to what was measured on them: shares of roofs and coefficients, by generation.

Generations are fitted together, as `COMMON` coefficients have one value on all of them.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from math import exp, log
from statistics import fmean

import numpy
from attrs import asdict, evolve, frozen
from numpy.typing import NDArray

from nest.catalogue import Calibration
from nest.instance import Array
from nest.spec import Coefficients, DeviceSpec, Range, ranges
from nest_calibrate.robust_fit import UNTOLD, Prior, belief_left, robust_fit

WIDE = "bf16"
"""The number format whose products `efficiency.matmul` speaks of; other formats have entries of their own."""

SHARES = {"matmul": (0.2, 0.15), "attention": (0.05, 0.3), "memory": (0.3, 0.1)}
"""Least share of its roof each kind of operator can reach, and how far off published figures may be (the standard
deviation of the logarithm): those of attention are of single kernels, of one generation of kernels each."""

NARROW_SPREAD = 0.2
"""The same for products in other formats, of which less is published."""

COMMON = (
    "contracted_half",
    "sharded_synchronisation",
    "host_launch",
    "grace_launch",
    "routing_launches",
    "eager",
    "data_exposed",
    "gathers_exposed",
)
"""Coefficients that have one value on all generations of devices: what a tile costs beside its products, in elements
summed over, and what is of hosts and frameworks."""

SUSTAINED = "sustained"

MATRIX = ("matmul", "attention")
"""Kinds of operator whose shares are of the matrix peak, which `sustained` multiplies."""

NOISE = 0.06
"""Relative error expected of a prediction: repeated runs of one plan differ by 3 to 5 % in the published data."""

OUTLIER = 0.06
"""Relative error beyond which a measurement counts less and less."""

STEPS = 30
"""Most steps of a fit."""

LAST_GAIN = 1e-5
"""Largest relative gain of a fit's last step: three digits of a coefficient need no more."""

DIGITS = 3
"""Significant digits of fitted numbers."""

REMEMBERED = 4
"""Predictions of a generation that a fit remembers: those at the values of the last step, and of a few it tries."""

Mask = NDArray[numpy.bool_]

Predict = Callable[[Mapping[str, DeviceSpec]], Array]
"""Predicted seconds of every measurement, on devices by name."""


@frozen(eq=False)
class Calibrated:
    """One generation, calibrated. Arrays of shape `(measurements,)`.

    Attributes:
        calibration: what was found.
        devices: those measured, by their published figures.
        groups: of each measurement, for tables.
        families: of each.
        measured: seconds.
        before: seconds predicted with what the fit begins at: the catalogue's calibration, or none.
        after: with the calibration.
        validated: with a calibration to the other families.
    """

    calibration: Calibration
    devices: tuple[DeviceSpec, ...]
    groups: tuple[str, ...]
    families: tuple[str, ...]
    measured: Array
    before: Array
    after: Array
    validated: Array


@frozen
class Unknown:
    """One number to find, a key of `efficiency`, a coefficient, or `sustained.DEVICE`, and what is expected of it."""

    name: str
    range: Range


def unknowns(
    devices: Sequence[DeviceSpec], formats: Collection[str], known: Calibration | None = None
) -> tuple[Unknown, ...]:
    """Unknown coefficients of the devices of one generation.

    What was published of them is what is expected, the mean over the devices, or what is `known` of their generation
    from earlier measurements. `formats` are those in which products with weights were measured; those `known` speaks of
    are added, as a device calibrated anew must not fall back to what was published of them. The first device's
    `sustained` is 1 by definition.
    """
    result = [_share(kind, kind, *SHARES[kind], devices) for kind in SHARES]
    earlier = (
        set() if known is None else {name.partition(".")[2] for name in known.efficiency if name.startswith("matmul.")}
    )
    narrow = sorted({*formats, *earlier} - {WIDE, ""})
    kernels = sorted({name for device in devices for name in device.efficiency if name.startswith("attention.")})
    result += [_share(each, "attention", *SHARES["attention"], devices) for each in kernels]
    result += [_share(f"matmul.{each}", "matmul", SHARES["matmul"][0], NARROW_SPREAD, devices) for each in narrow]
    terms = ranges()
    result += [Unknown(name, terms[name]) for name in terms if name != SUSTAINED]
    result += [Unknown(f"{SUSTAINED}.{device.name}", terms[SUSTAINED]) for device in devices[1:]]
    if known is None:
        return tuple(result)
    restated = _restated(known, devices)
    return tuple(_expecting(each, restated[each.name]) if each.name in restated else each for each in result)


def _restated(known: Calibration, devices: Sequence[DeviceSpec]) -> dict[str, float]:
    """The unknowns as a calibration has them, restated for the first of `devices` as the one whose `sustained` is 1."""
    first = known.sustained.get(devices[0].name, 1.0)
    shares = {
        name: value * (first if name.partition(".")[0] in MATRIX else 1.0) for name, value in known.efficiency.items()
    }
    own = {f"{SUSTAINED}.{each.name}": known.sustained.get(each.name, 1.0) / first for each in devices[1:]}
    return {**asdict(known.coefficients), **shares, **own}


def _expecting(unknown: Unknown, value: float) -> Unknown:
    limits = unknown.range
    return Unknown(unknown.name, evolve(limits, prior=min(max(value, limits.low), limits.high)))


def _share(name: str, usual: str, least: float, spread: float, devices: Sequence[DeviceSpec]) -> Unknown:
    published = [d.efficiency.get(name, d.efficiency.get(usual, d.efficiency.get("default", 1.0))) for d in devices]
    prior = exp(fmean(log(max(share, least)) for share in published))
    return Unknown(name, Range(least, 1.0, prior, spread))


def calibration(name: str, values: Mapping[str, float]) -> Calibration:
    """Calibration of the generation `name`, from `values` by the names of `unknowns`."""
    return Calibration(
        name=name,
        efficiency={each: value for each, value in values.items() if each.partition(".")[0] in SHARES},
        coefficients=Coefficients(**{each: values[each] for each in ranges() if each in values}),
        sustained={
            each.removeprefix(f"{SUSTAINED}."): value
            for each, value in values.items()
            if each.startswith(f"{SUSTAINED}.")
        },
    )


def plain(device: DeviceSpec) -> DeviceSpec:
    """`device` without a calibration."""
    return evolve(device, calibration=Coefficients())


@frozen(eq=False)
class Evidence:
    """Measurements on devices of one generation.

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
    """Weight of each measurement: a family of `n` counts as much as the root of `n` single ones.

    Those of one family share what no coefficient describes, so that more of them tell less and less that is new.
    """
    sizes = Counter(families)
    result = numpy.array([sizes[name] ** -0.25 for name in families])
    return numpy.asarray(result * numpy.sqrt(len(families) / (result**2).sum()))


def expected(unknowns: Sequence[Unknown]) -> Prior:
    """Prior of the logarithms of unknowns, in their order."""
    ranges = [each.range for each in unknowns]
    return Prior(
        center=numpy.log([each.prior for each in ranges]),
        spread=numpy.array([each.spread for each in ranges]),
        low=numpy.log([each.low for each in ranges]),
        high=numpy.log([each.high for each in ranges]),
    )


def fit(seen: Sequence[Evidence], chosen: Sequence[Mask]) -> list[dict[str, float]]:
    """The unknowns under which predictions of the `chosen` measurements come closest, by name, for each generation.

    Robust least squares of the logarithm of predicted over measured, with a prior on the logarithm of each unknown.
    `chosen` are those of all measurements to fit to, by generation. Shapes `(measurements,)`.
    """
    every, places = together(seen)
    residuals = _all_residuals(seen, chosen, places)
    fitted = robust_fit(residuals, expected(every), OUTLIER, NOISE, steps=STEPS, settled=LAST_GAIN)
    return [
        values_of(evidence, fitted[its], DIGITS if taken.any() else None)
        for evidence, its, taken in zip(seen, places, chosen, strict=True)
    ]


def untold(seen: Sequence[Evidence], fitted: Sequence[Mapping[str, float]]) -> list[list[str]]:
    """Of each generation the unknowns, `fitted` to all that was measured, of which this tells next to nothing."""
    every, places = together(seen)
    at = numpy.zeros(len(every))
    for evidence, values, its in zip(seen, fitted, places, strict=True):
        at[its] = numpy.log([values[each.name] for each in evidence.unknowns])
    residuals = _all_residuals(seen, [numpy.ones(len(each.families), dtype=bool) for each in seen], places)
    left = belief_left(residuals, at, expected(every), OUTLIER, NOISE) > UNTOLD
    return [
        [unknown.name for unknown, nothing in zip(evidence.unknowns, left[its].tolist(), strict=True) if nothing]
        for evidence, its in zip(seen, places, strict=True)
    ]


def _all_residuals(
    seen: Sequence[Evidence], chosen: Sequence[Mask], places: Sequence[NDArray[numpy.int64]]
) -> Callable[[Array], Array]:
    """Of the `chosen` measurements of all generations, for logarithms of all unknowns, which stand at `places`."""
    parts = [_residuals(*each) for each in zip(seen, chosen, strict=True)]
    return lambda logarithms: numpy.concatenate(
        [part(logarithms[its]) for part, its in zip(parts, places, strict=True)]
    )


def together(seen: Sequence[Evidence]) -> tuple[list[Unknown], list[NDArray[numpy.int64]]]:
    """The unknowns of all generations, the common ones once, and where those of each stand among them."""
    every: list[Unknown] = []
    common: dict[str, int] = {}
    places = []
    for evidence in seen:
        its = []
        for unknown in evidence.unknowns:
            place = common.get(unknown.name, len(every))
            if place == len(every):
                every.append(unknown)
            if unknown.name in COMMON:
                common[unknown.name] = place
            its.append(place)
        places.append(numpy.array(its, dtype=numpy.int64))
    return every, places


def _residuals(evidence: Evidence, chosen: Mask) -> Callable[[Array], Array]:
    """Weighted logarithms of predicted over measured, of the `chosen` measurements, for logarithms of the unknowns.

    What an unknown of another generation changes leaves these as they are: the last few are remembered.
    """
    if not chosen.any():
        return lambda logarithms: numpy.zeros(0)
    weight = weights([name for name, taken in zip(evidence.families, chosen, strict=True) if taken])
    measured = evidence.seconds[chosen]

    @lru_cache(maxsize=REMEMBERED)
    def remembered(logarithms: bytes) -> Array:
        values = values_of(evidence, numpy.frombuffer(logarithms))
        return numpy.asarray(weight * numpy.log(predicted(evidence, values)[chosen] / measured))

    return lambda logarithms: remembered(logarithms.tobytes())


def values_of(evidence: Evidence, logarithms: Array, digits: int | None = None) -> dict[str, float]:
    """The unknowns by name; neither rounding nor the exponential takes one beyond what it can be."""
    pairs = zip(evidence.unknowns, numpy.exp(logarithms).tolist(), strict=True)
    rounded = ((each, value if digits is None else float(f"{value:.{digits}g}")) for each, value in pairs)
    return {each.name: min(max(value, each.range.low), each.range.high) for each, value in rounded}


def predicted(evidence: Evidence, values: Mapping[str, float]) -> Array:
    """Seconds of every measurement with `values` of the unknowns."""
    return predicted_with(evidence, calibration("", values))


def predicted_with(evidence: Evidence, known: Calibration) -> Array:
    """Seconds of every measurement with a calibration of the devices' generation."""
    return evidence.predict({name: known.on(device) for name, device in evidence.devices.items()})


def parts(families: Sequence[str], folds: int) -> NDArray[numpy.int64]:
    """The part that each measurement is held out with: families in the order of names, in turn."""
    part = {name: index % folds for index, name in enumerate(sorted(set(families)))}
    return numpy.array([part[name] for name in families], dtype=numpy.int64)


def folded(
    seen: Sequence[Evidence], part: Sequence[NDArray[numpy.int64]]
) -> Iterator[tuple[list[Mask], list[dict[str, float]]]]:
    """For each part of the measurements which it holds, and the unknowns fitted to all others, by generation.

    Where a generation has no others, what is expected has to do, but for what is common to generations. `part` is that
    with which each measurement is held out. Shapes `(measurements,)`.
    """
    for fold in sorted({int(each) for its in part for each in its}):
        held = [its == fold for its in part]
        yield held, fit(seen, [~each for each in held])


def cross_validated(seen: Sequence[Evidence], folds: int) -> list[Array]:
    """Seconds of every measurement, predicted from fits to other families only. Shapes `(measurements,)`.

    Each fit begins at what is expected: to begin at a fit to all would let the families it is judged by have a say.
    The families of each generation are divided into so many `folds`, in the order of their names.
    """
    logarithms = [numpy.zeros(len(evidence.families)) for evidence in seen]
    for held, values in folded(seen, [parts(evidence.families, folds) for evidence in seen]):
        for seconds, evidence, its, fitted in zip(logarithms, seen, held, values, strict=True):
            seconds[its] = predicted(evidence, fitted)[its]
    return logarithms
