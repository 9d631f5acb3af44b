"""Quantities: numbers in SI units, or text with a unit (FORMATS.md), and how people like to read them."""

import math
import re
from typing import NewType

Seconds = NewType("Seconds", float)
Bytes = NewType("Bytes", float)
BytesPerSecond = NewType("BytesPerSecond", float)
FlopPerSecond = NewType("FlopPerSecond", float)

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}

_SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
}
_BYTES = {f"{prefix}B": factor for prefix, factor in (_DECIMAL | _BINARY).items()}
_BITS = {f"{prefix}{bit}": factor / 8 for prefix, factor in (_DECIMAL | _BINARY).items() for bit in ("bit", "b")}
_BYTES_PER_SECOND = {f"{unit}/s": factor for unit, factor in (_BYTES | _BITS).items()}
_BYTES_PER_SECOND |= {f"{prefix}bps": _DECIMAL[prefix] / 8 for prefix in ("", "k", "M", "G", "T")}
_FLOP_PER_SECOND = {
    f"{prefix}{flop}": factor for prefix, factor in _DECIMAL.items() for flop in ("FLOP/s", "FLOPS", "FLOPs/s")
}

UNITS: dict[object, tuple[str, dict[str, float], str]] = {
    Seconds: ("a time", _SECONDS, "ns, us, ms, s, min, h"),
    Bytes: ("a size", _BYTES, "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB"),
    BytesPerSecond: ("a bandwidth", _BYTES_PER_SECOND, "B/s, MB/s, GB/s, TB/s, GiB/s, Gbit/s"),
    FlopPerSecond: ("a speed of computation", _FLOP_PER_SECOND, "FLOP/s, GFLOP/s, TFLOP/s, PFLOP/s"),
}
"""Kinds of quantity: what to call one, its units with their factors, and examples for messages."""

_TEXT = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(\S*)\s*")


def parse(value: object, kind: object) -> float:
    """`value` in SI units.

    Args:
        value: a number in SI units, or text such as `"450 GB/s"`.
        kind: `Seconds`, `Bytes`, `BytesPerSecond` or `FlopPerSecond`.

    Raises:
        ValueError: it is no such quantity; the text completes a sentence that begins with the place.
    """
    name, factors, examples = UNITS[kind]
    if isinstance(value, str):
        match = _TEXT.fullmatch(value)
        if match is None:
            raise ValueError(f"must be {name}: a number in SI units, or text with a unit ({examples}), is {value!r}")
        number, unit = float(match[1]), match[2]
        if unit not in factors and unit:
            raise ValueError(f"has the unit {unit!r}, which is not that of {name}; use {examples}")
        number *= factors[unit] if unit else 1.0
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
    else:
        raise ValueError(f"must be {name}: a number in SI units, or text with a unit ({examples}), is {value!r}")
    if not math.isfinite(number):
        raise ValueError(f"must be a finite number, is {value!r}")
    return number


def _scaled(value: float, steps: tuple[tuple[float, str], ...]) -> str:
    for size, unit in steps:
        if abs(value) >= size:
            return f"{value / size:.4g} {unit}"
    size, unit = steps[-1]
    return f"{value / size:.3g} {unit}"


def format_seconds(value: float) -> str:
    """Seconds for people: `12.3 ms`."""
    if value == 0:
        return "0 s"
    if value >= 600:
        return f"{value / 60:.4g} min" if value < 36000 else f"{value / 3600:.4g} h"
    return _scaled(value, ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")))


def format_bytes(value: float) -> str:
    """Bytes for people, in binary units: `71.2 GiB`."""
    if value == 0:
        return "0 B"
    return _scaled(value, ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B")))


def format_bytes_per_second(value: float) -> str:
    """Bandwidths for people: `450 GB/s`."""
    return _scaled(value, ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")))


def format_flop_per_second(value: float) -> str:
    """Speeds of computation for people: `989 TFLOP/s`."""
    return _scaled(value, ((1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1.0, "FLOP/s")))
