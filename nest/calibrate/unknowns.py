"""What a calibration of devices looks for: shares of roofs and coefficients, with what they can be."""

from collections.abc import Collection, Mapping, Sequence
from math import exp, log
from statistics import fmean

from attrs import asdict, evolve, frozen

from nest.catalogue import Calibration
from nest.spec import Coefficients, DeviceSpec, Range, ranges

WIDE = "bf16"
"""The number format whose products `efficiency.matmul` speaks of; other formats have entries of their own."""

SHARES = {"matmul": (0.2, 0.15), "attention": (0.05, 0.3), "memory": (0.3, 0.1)}
"""Least share of its roof each kind of operator can reach, and how far off published figures may be (the standard
deviation of the logarithm): those of attention are of single kernels, of one generation of kernels each."""

NARROW_SPREAD = 0.2
"""The same for products in other formats, of which less is published."""

COMMON = ("contracted_half", "sharded_synchronisation")
"""Coefficients that have one value on all generations of devices: what a tile costs beside its products, in elements
summed over, and how often frameworks exchange what a sharded optimizer needs."""

SUSTAINED = "sustained"

MATRIX = ("matmul", "attention")
"""Kinds of operator whose shares are of the matrix peak, which `sustained` multiplies."""


@frozen
class Unknown:
    """One number to find.

    Attributes:
        name: a key of `efficiency`, a coefficient, or `sustained.DEVICE`.
        range: what it can be and is expected to be.
    """

    name: str
    range: Range


def unknowns(
    devices: Sequence[DeviceSpec], formats: Collection[str], known: Calibration | None = None
) -> tuple[Unknown, ...]:
    """What devices of one generation leave open.

    What was published of them is what is expected, the mean over the devices, or what is `known` of their generation.

    Args:
        devices: with their published figures; the first one's `sustained` is 1 by definition.
        formats: number formats in which products with weights were measured; those `known` speaks of are added, as a
            device calibrated anew must not fall back to what was published of them.
        known: what earlier measurements told of the generation; None: nothing.
    """
    found = [_share(kind, kind, *SHARES[kind], devices) for kind in SHARES]
    earlier = set() if known is None else {name.partition(".")[2] for name in known.efficiency}
    narrow = sorted({*formats, *earlier} - {WIDE, ""})
    found += [_share(f"matmul.{each}", "matmul", SHARES["matmul"][0], NARROW_SPREAD, devices) for each in narrow]
    terms = ranges()
    found += [Unknown(name, terms[name]) for name in terms if name != SUSTAINED]
    found += [Unknown(f"{SUSTAINED}.{device.name}", terms[SUSTAINED]) for device in devices[1:]]
    if known is None:
        return tuple(found)
    told = _told(known, devices)
    return tuple(_expecting(each, told[each.name]) if each.name in told else each for each in found)


def _told(known: Calibration, devices: Sequence[DeviceSpec]) -> dict[str, float]:
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


def calibration(name: str, values: Mapping[str, float], sources: tuple[str, ...] = ()) -> Calibration:
    """What was found of the generation `name`: `values` by the names of `unknowns`."""
    return Calibration(
        name=name,
        efficiency={each: value for each, value in values.items() if each.partition(".")[0] in SHARES},
        coefficients=Coefficients(**{each: values[each] for each in ranges() if each in values}),
        sustained={
            each.removeprefix(f"{SUSTAINED}."): value
            for each, value in values.items()
            if each.startswith(f"{SUSTAINED}.")
        },
        sources=sources,
    )


def plain(device: DeviceSpec) -> DeviceSpec:
    """`device` without a calibration."""
    return evolve(device, calibration=Coefficients())
