"""Measurements that cannot be, mostly as they are in another unit: refused, with the unit that was likely meant."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf, log, sqrt

from attrs import frozen

from nest.errors import PlacedErrors
from nest.units import format_bytes, format_seconds, percent
from nest_calibrate.lines import APART

STEP = 1000.0
"""Ratio of neighbouring units of one kind: seconds and milliseconds, or MB and GB."""

FAR = sqrt(STEP)
"""Largest ratio, or inverse ratio, of a figure to its prediction: beyond, the next unit is nearer. The published runs
take from 0.56 to 6.3 times as long as predicted."""


@frozen
class Quantity:
    """Words for figures of a kind.

    Attributes:
        format: a figure, for people.
        units: what can be written for one, by the unit, in SI.
    """

    format: Callable[[float], str]
    units: Mapping[str, float]


TIME = Quantity(format_seconds, {"ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0})
MEMORY = Quantity(format_bytes, {"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30})


@frozen
class Figure:
    """A measured figure, and what it can be.

    Attributes:
        place: file and line.
        key: under which it stands.
        value: as written, in SI units.
        expected: as predicted.
        beside: what it may be more than any multiple of that.
        least: what it is at least.
        floor: says what makes it so, to follow "is at least ...".
        most: what it is at most.
        ceiling: says what makes it so.
        noise: relative error that a measurement may have.
        quantity: its kind.
    """

    place: str
    key: str
    value: float
    expected: float
    beside: float = 0.0
    least: float = 0.0
    floor: str = ""
    most: float = inf
    ceiling: str = ""
    noise: float = 0.0
    quantity: Quantity = TIME


def refuse_impossible(figures: Iterable[Figure]) -> None:
    """Raise `InputErrors` that tell of every figure that cannot be: its line, why, and the unit likely meant."""
    sentences = [sentence for each in figures for sentence in _wrong(each)]
    if sentences:
        raise PlacedErrors(sentences)


def _wrong(figure: Figure) -> Iterator[str]:
    """Name the fault of a figure, if there is one."""
    told, allowed = figure.quantity.format, 1 + APART * figure.noise
    said = f"{figure.place}: {figure.key} is {told(figure.value)}"
    if figure.value * allowed < figure.least:
        speed = f"that would be {percent(figure.least / figure.value, 0)} of it"
        yield f"{said}, but is at least {told(figure.least)} {figure.floor}; {speed}{_likely(figure)}"
    elif figure.value > figure.most * allowed:
        yield f"{said}, but is at most {told(figure.most)} {figure.ceiling}{_likely(figure)}"
    elif not figure.expected / FAR <= figure.value <= figure.expected * FAR + figure.beside:
        yield f"{said}, {_times(figure)} the {told(figure.expected)} predicted{_likely(figure)}"


def _times(figure: Figure) -> str:
    ratio = figure.value / figure.expected
    return f"{ratio:.3g} times" if ratio >= 1 else f"1/{1 / ratio:.3g} of"


def _likely(figure: Figure) -> str:
    """The end of the sentence, with the unit in which the figure would be nearest to what is predicted."""
    ratio = figure.value / figure.expected
    away = {unit: abs(log(ratio * size)) for unit, size in figure.quantity.units.items()}
    unit = min(away, key=away.__getitem__)
    if away[unit] < log(FAR) / 2:
        return f'. Numbers are in SI units; if it is in {unit}, write "{figure.value:.6g} {unit}".'
    if ratio < 1 / FAR:
        return ". Numbers are in SI units; was it converted twice?"
    return ". Check that the line describes this run."
