"""Quantities: numbers in SI units, or text with a unit (FORMATS.md), and their formats for people."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, NamedTuple, NewType

Seconds = NewType("Seconds", float)
Bytes = NewType("Bytes", float)
BytesPerSecond = NewType("BytesPerSecond", float)
FlopPerSecond = NewType("FlopPerSecond", float)
Count = Annotated[int, "a count"]
"""Samples, tokens and the like: `15T` is 15e12."""
Positions = Annotated[int, "positions"]
"""Positions of a sequence, counted in powers of two: `8k` is 8192."""

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_PREFIXES = (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))
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
    "d": 86400.0,
    "day": 86400.0,
    "days": 86400.0,
}
_BYTES = {f"{prefix}B": factor for prefix, factor in (_DECIMAL | _BINARY).items()}
_BITS = {f"{prefix}{bit}": factor / 8 for prefix, factor in (_DECIMAL | _BINARY).items() for bit in ("bit", "b")}
_BYTES_PER_SECOND = {f"{unit}/s": factor for unit, factor in (_BYTES | _BITS).items()}
_BYTES_PER_SECOND |= {f"{prefix}bps": _DECIMAL[prefix] / 8 for prefix in ("", "k", "M", "G", "T")}
_FLOP_PER_SECOND = {
    f"{prefix}{flop}": factor for prefix, factor in _DECIMAL.items() for flop in ("FLOP/s", "FLOPS", "FLOPs/s")
}

LARGEST_WHOLE = 2**53
"""Largest whole number up to which float64 is exact."""

SMALLEST, LARGEST = 1e-30, 1e30
"""Sizes of quantities other than 0, in SI units: products and quotients of a few stay far from overflow."""


class Quantity(NamedTuple):
    """A kind of quantity.

    Attributes:
        name: of one.
        units: with their size in SI units.
        examples: units for messages.
    """

    name: str
    units: Mapping[str, float]
    examples: str

    @property
    def sentence(self) -> str:
        """Return the allowed forms, to follow `must be`."""
        return f"{self.name}: a number in SI units, or text with a unit ({self.examples})"

    @property
    def pattern(self) -> str:
        """Return a regular expression (JSON schema) for the texts that `parse` takes."""
        units = "|".join(re.escape(unit) for unit in self.units)
        return rf"^\s*{_NUMBER}\s*({units})?\s*$"


QUANTITIES: Mapping[object, Quantity] = {
    Seconds: Quantity("a time", _SECONDS, "ns, us, ms, s, min, h, d"),
    Bytes: Quantity("a size", _BYTES, "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB"),
    BytesPerSecond: Quantity("a bandwidth", _BYTES_PER_SECOND, "B/s, MB/s, GB/s, TB/s, GiB/s, Gbit/s"),
    FlopPerSecond: Quantity("a speed of computation", _FLOP_PER_SECOND, "FLOP/s, GFLOP/s, TFLOP/s, PFLOP/s"),
}
"""The kinds of quantity, by type."""

COUNTS: Mapping[object, Mapping[str, int]] = {
    Count: {"k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20},
    Positions: {"k": 2**10, "K": 2**10, "M": 2**20, "Ki": 2**10, "Mi": 2**20},
}
"""The kinds of whole number with suffixes, each with their values."""

_NUMBER = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"
# A unit begins unlike a number continues: otherwise a row of n digits could be split in n ways.
_TEXT = re.compile(rf"(?P<number>{_NUMBER})\s*(?P<unit>[^\s0-9.]\S*)?")


def parse(value: object, kind: object) -> float:
    """Return `value` in SI units.

    Args:
        value: a number in SI units, or text such as `"450 GB/s"`.
        kind: `Seconds`, `Bytes`, `BytesPerSecond` or `FlopPerSecond`.

    Raises:
        ValueError: it is no such quantity; the text completes a sentence that begins with the place.
    """
    quantity = QUANTITIES[kind]
    if isinstance(value, str):
        number = _from_text(value, quantity)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        number = _as_float(value)
    else:
        raise ValueError(f"must be {quantity.sentence}, is {displayed(value)}")
    if not math.isfinite(number):
        raise ValueError(f"must be a finite number, is {displayed(value)}")
    if number and not SMALLEST <= abs(number) <= LARGEST:
        raise ValueError(f"must be 0 or from {SMALLEST:g} to {LARGEST:g} in SI units, is {displayed(value)}")
    return number


def _from_text(text: str, quantity: Quantity) -> float:
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"must be {quantity.sentence}, is {displayed(text)}")
    number, unit = float(match["number"]), match["unit"]
    if unit and unit not in quantity.units:
        meant = _nearest_units(unit, quantity.units)
        remedy = f"did you mean {' or '.join(meant)}?" if meant else f"use {quantity.examples}"
        raise ValueError(f"has the unit {displayed(unit)}, not a unit of {quantity.name}; {remedy}")
    return number * quantity.units[unit] if unit else number


def _nearest_units(unit: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return units resembling `unit`: alike but for `/s` and capitals, or with the same beginning; at most 3."""
    stem, stems = _stem(unit), dict[str, str]()
    for each in known:
        stems.setdefault(_stem(each), each)
    alike = sorted((each for each in stems if each.lower() == stem.lower()), key=lambda each: each != stem)
    begun = [each for each in stems if each.startswith(stem)] if len(stem) == 1 else []
    around = sorted((each for each in stems if stem.startswith(each)), key=len)[-1:]
    return tuple(stems[each] for each in (alike or begun or around)[:3])


def _stem(unit: str) -> str:
    return re.sub(r"(/s|ps)$", "", unit)


def parse_count(text: str, kind: object) -> int:
    """Return the whole number of a text with a suffix, such as `"8k"`.

    Args:
        text: a number and a suffix.
        kind: `Count` or `Positions`.

    Raises:
        ValueError: it is no such number; the text completes a sentence that begins with the place.
    """
    suffixes = COUNTS[kind]
    match = _TEXT.fullmatch(text.strip())
    power = match is not None and match["unit"] is None and "e" in match["number"].lower()
    if match is None or not (power or match["unit"] in suffixes) or text.strip()[0] in "+-":
        raise ValueError(f"must be a whole number, is {displayed(text)}")
    number = float(match["number"]) * suffixes.get(match["unit"], 1)
    if not abs(number) <= LARGEST_WHOLE:
        raise ValueError("is too large: whole numbers go up to 2**53")
    if abs(round(number) - number) > 1e-9 * abs(number):
        raise ValueError(f"must be a whole number, is {displayed(text)}, which makes {number:g}")
    return round(number)


def whole_number(text: str) -> int | None:
    """Return the number of up to 9 ASCII digits; None: `text` is anything else.

    No count of devices, links or lanes has more digits. Python makes no number of 4,300, and no float of 309.
    """
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else None


def count_pattern(kind: object) -> str:
    """Return a regular expression (JSON schema) for the texts that `parse_count` takes."""
    number = _NUMBER.removeprefix("[+-]?")
    return rf"^\s*({number}\s*({'|'.join(COUNTS[kind])})|{number.removesuffix('?')})\s*$"


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def displayed(value: object) -> str:
    """Return `value` for a message: in full if short, else its kind."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, int) and abs(value) >= 10**18:
        return "a very large number"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def three_digits(value: float) -> str:
    """Format with three significant digits, whole numbers in full: `59.0`, `80`, `0.312`, `1,110`."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    rounded = float(f"{value:.3g}")
    if rounded == round(value) and math.isclose(value, rounded, rel_tol=1e-12):
        return f"{rounded:,.0f}"
    return f"{rounded:,.{max(0, 2 - math.floor(math.log10(abs(rounded))))}f}"


def percent(share: float, places: int = 1) -> str:
    """Format a share in per cent: `92.1 %`; `0.03 %` instead of zero."""
    text = f"{100 * share:.{places}f}"
    if share and not float(text):
        text = f"{100 * share:.1g}" if abs(share) >= 1e-4 else "under 0.01"
    return f"{text} %"


def likelihood(probability: float) -> str:
    """Return a probability in whole per cents, never certain: `79 %`, `over 99 %`."""
    return "over 99 %" if probability > 0.995 else "under 1 %" if probability < 0.005 else percent(probability, 0)


def _scaled(value: float, steps: tuple[tuple[float, str], ...], digits: Callable[[float], str] = three_digits) -> str:
    for size, unit in steps:
        shown = digits(value / size)
        if abs(float(shown.replace(",", ""))) >= 1:  # As shown: 0.9996 s is 1.00 s, not 1,000 ms.
            return f"{shown} {unit}"
    size, unit = steps[-1]
    return f"{value / size:.3g} {unit}"


def format_seconds(value: float) -> str:
    """Format seconds: `12.3 ms`, `2.50 h`, `30 days`."""
    if value == 0:
        return "0 s"
    if value >= 600:
        unit = "min" if value < 7200 else "h" if value <= 172800 else "days"
        return f"{three_digits(value / _SECONDS[unit])} {unit}"
    return _scaled(value, ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")))


def format_decimal(value: float, unit: str) -> str:
    """Format bytes, bytes per second or FLOP per second in decimal units, as in data sheets: `3.352 TB/s`."""
    if value == 0:
        return f"0 {unit}"
    return _scaled(value, tuple((factor, prefix + unit) for prefix, factor in _PREFIXES), "{:.4g}".format)


def format_bytes(value: float) -> str:
    """Format bytes in binary units: `71.2 GiB`."""
    if value == 0:
        return "0 B"
    return _scaled(value, ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B")))


def listed(names: Sequence[str]) -> str:
    """Join names: `a`, `a and b`, `a, b and c`; empty without any."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def first_names(names: Sequence[str], most: int = 3) -> str:
    """Join the first names, cut to 60 characters, and count the others: `a, b, c and 4 more`."""
    others = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(f"{name:.60}" for name in names[:most]) + others
