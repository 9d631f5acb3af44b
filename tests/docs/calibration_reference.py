"""Tables of coefficients in the documents, made of `nest/spec/device.py` and of `nest/library/calibrations`.

`python -m tests.docs.refresh docs/explanation/cost-model.md docs/reference/devices.md` writes them; a test compares.
"""

import inspect
import re
from collections.abc import Iterator
from math import exp

from nest.catalogue import Calibration, calibrations, published_devices
from nest.spec import Coefficients, DeviceSpec, Range, ranges
from nest_calibrate.devices import NARROW_SPREAD, SHARES
from tests.docs import generated

MICRO = {"host_launch"}
"""Coefficients told in microseconds."""

FITTED = re.compile(
    r"over (?P<count>\d+) measurements of (?P<families>\d+) families; .* relative errors (?P<after>.*?), "
    r"cross-validated by family (?P<validated>.*?), without it (?P<before>.*)$"
)
"""What a calibration says of itself (`nest_calibrate.generations`)."""


def begin(part: str) -> str:
    """The mark in front of a generated part."""
    return generated.begin("calibration_reference", part)


def refreshed(page: str) -> str:
    """`page` with every part between marks made anew."""
    return generated.refreshed(page, "calibration_reference", PARTS)


def coefficients() -> Iterator[str]:
    """A row for each coefficient: what it means, and what a calibration may make of it."""
    yield "| coefficient | | left out | bounds | expected | to a factor of |"
    yield "|---|---|---|---|---|---|"
    off = Coefficients()
    for name, told in _meanings().items():
        found = ranges()[name]
        figures = (_figure(name, getattr(off, name)), _bounds(name, found), _figure(name, found.prior))
        yield f"| `{name}` | {told} | {' | '.join(figures)} | {exp(found.spread):.2g} |"
    for kind, (least, spread) in SHARES.items():
        yield _share_row(f"efficiency.{kind}", least, spread)
    yield _share_row("efficiency.matmul.FORMAT", SHARES["matmul"][0], NARROW_SPREAD)


def _share_row(name: str, least: float, spread: float) -> str:
    return f"| `{name}` | share of the roof reached | 1 | {least:g} to 1 | as published | {exp(spread):.2g} |"


def _meanings() -> dict[str, str]:
    """What the docstring says of each coefficient."""
    _, _, text = inspect.cleandoc(Coefficients.__doc__ or "").partition("Attributes:\n")
    found = re.findall(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", text, re.MULTILINE)
    return {name: " ".join(told.split()).rstrip(".") for name, told in found}


def _bounds(name: str, found: Range) -> str:
    return f"{_figure(name, found.low, unit=False)} to {_figure(name, found.high)}"


def _figure(name: str, value: float, unit: bool = True) -> str:
    return f"{value * 1e6:g}{' us' * unit}" if name in MICRO else f"{value:g}"


def generations() -> Iterator[str]:
    """A row for each calibration: its devices, what it was fitted to, and its errors."""
    yield "| generation | devices | measurements | families | without | fitted | cross-validated |"
    yield "|---|---|---|---|---|---|---|"
    for found in calibrations().values():
        told = FITTED.search(found.sources[0])
        assert told is not None, found.sources
        cells = [told[key].replace(" and ", ", ") for key in ("count", "families", "before", "after", "validated")]
        devices = ", ".join(f"`{device.name}`" for device in _devices(found))
        yield f"| `{found.name}` | {devices} | {' | '.join(cells)} |"


def _devices(found: Calibration) -> list[DeviceSpec]:
    return [device for device in published_devices().values() if device.generation == found.name]


def shares() -> Iterator[str]:
    """A row for each calibrated device: shares of its roofs as published, and as found."""
    formats = sorted({key for found in calibrations().values() for key in found.efficiency if "." in key})
    kinds = [*SHARES, *formats]
    yield f"| published, calibrated | {' | '.join(kinds)} | `sustained` |"
    yield f"|{'---|' * (len(kinds) + 2)}"
    for found in calibrations().values():
        for device in _devices(found):
            cells = [_both(device, found, kind) for kind in kinds]
            yield f"| `{device.name}` | {' | '.join(cells)} | {found.sustained.get(device.name, 1.0):g} |"


def _both(device: DeviceSpec, found: Calibration, kind: str) -> str:
    before, after = device.efficiency.get(kind), found.efficiency.get(kind)
    if before is None and after is None:
        return ""
    told = "–" if before is None else f"{before:g}"
    return f"{told}, {told if after is None else f'{after:g}'}"


def values() -> Iterator[str]:
    """A row for each coefficient, with what each generation was found to have."""
    known = calibrations()
    yield f"| coefficient | {' | '.join(known)} |"
    yield f"|{'---|' * (len(known) + 1)}"
    for name, found in ranges().items():
        if name != "sustained":
            cells = (_found(name, getattr(each.coefficients, name), found) for each in known.values())
            yield f"| `{name}` | {' | '.join(cells)} |"


def _found(name: str, value: float, known: Range) -> str:
    """A value; in brackets where it is what was expected; with a star where it is at a bound."""
    told = _figure(name, value)
    if abs(value / known.prior - 1) < 5e-4:
        return f"({told})"
    return f"{told} *" if value in (known.low, known.high) else told


PARTS = {"coefficients": coefficients, "generations": generations, "shares": shares, "values": values}
