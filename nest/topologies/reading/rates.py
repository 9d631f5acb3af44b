"""Rates as tools of the field name them, to links of the catalogue."""

import re

from nest.spec import TierSpec
from nest.units import BytesPerSecond

LANE = {
    "SDR": 2.0,
    "DDR": 4.0,
    "QDR": 8.0,
    "FDR10": 10.0,
    "FDR": 13.64,
    "EDR": 25.0,
    "HDR": 50.0,
    "NDR": 100.0,
    "XDR": 200.0,
}
"""Gbit/s of data on one lane and direction: InfiniBand Architecture Specification volume 1, tables of link speeds. SDR
to QDR signal 10 bits for 8, FDR10 and FDR 66 for 64; from EDR on the name is the rate of data."""

LANES = 4
"""Lanes of a port whose width is not written: ports of adapters and switches have four ("4x")."""

_RATE = re.compile(r"(?:(\d+)\s*[xX]\s*)?(SDR|DDR|QDR|FDR10|FDR|EDR|HDR100|HDR|NDR200|NDR|XDR)", re.IGNORECASE)
_HALVES = {"HDR100": ("HDR", 2), "NDR200": ("NDR", 2)}
"""Ports split in two: names of two lanes."""


def infiniband_rate(text: str) -> float | None:
    """Bytes per second and direction of a port called `4xNDR`, `NDR`, `HDR100` ...; None: no such rate is known."""
    found = _RATE.fullmatch(text.strip())
    if found is None:
        return None
    name = found[2].upper()
    name, lanes = _HALVES.get(name, (name, LANES))
    return LANE[name] * int(found[1] or lanes) * 1e9 / 8


def infiniband(text: str) -> TierSpec | None:
    """The catalogue's link for InfiniBand of a rate as `infiniband_rate` reads it; None: no such rate is known."""
    rate = infiniband_rate(text)
    return None if rate is None else TierSpec(link="infiniband", bandwidth=BytesPerSecond(rate))


def ethernet(bits_per_second: float) -> TierSpec:
    """The catalogue's link for Ethernet of a rate in bits per second and direction."""
    return TierSpec(link="ethernet", bandwidth=BytesPerSecond(bits_per_second / 8))
