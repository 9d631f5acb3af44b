"""Lines of files of measurements with their places, and what is doubtful about several of them together."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from math import exp, sqrt
from pathlib import Path
from typing import Generic, TypeVar

from attrs import evolve, frozen

from nest.errors import InputError
from nest.spec.measurements import Measurement, OperatorMeasurement, RunMeasurement, numbered_measurements
from nest.units import Seconds, format_seconds

Doubt = Callable[[str], None]
"""Called with what is doubtful about measurements, or about a fit to them, in a sentence or two."""

M_co = TypeVar("M_co", bound=Measurement, covariant=True)

APART = 3.0
"""Standard deviations between two contradicting measurements of one thing: with normal errors, three pairs in a
thousand are as far apart. Of the repeated published runs none are more than 1.16 times as long as others, 1.8 standard
deviations with an error of 6 % each."""

STARTING = 10e-6
"""Seconds by which measurements of one short call differ beside that: NVIDIA's tables of collectives give sizes once
for each of two number formats of one width, and calls of 10 to 50 us differ by up to 9.6 us between them."""

TOLD = 5
"""Most pairs of contradictory or repeated lines that are told one by one."""


def no_doubt(sentence: str) -> None:
    """Passes over what is doubtful."""


@frozen
class Line(Generic[M_co]):
    """A measurement, and the line of the file that holds it, counted from 1."""

    path: Path
    number: int
    measurement: M_co

    @property
    def place(self) -> str:
        """The place, for people."""
        return f"{self.path}:{self.number}"


def read_lines(files: Sequence[Path], doubt: Doubt = no_doubt) -> list[Line[Measurement]]:
    """The lines of files of measurements; a line that stands in them before counts once.

    Raises:
        InputError: a file cannot be read, or is given twice.
    """
    check_once(files)
    return list(_distinct([Line(path, *row) for path in files for row in numbered_measurements(path)], doubt))


def check_once(files: Sequence[Path]) -> None:
    """Raise `InputError` where a file is given twice, which would count its measurements twice."""
    seen: dict[Path, Path] = {}
    for path in files:
        first = seen.setdefault(path.absolute().resolve(), path)
        if first is not path:
            raise InputError(f"{path}: given twice; name it once.")


def _distinct(lines: Iterable[Line[Measurement]], doubt: Doubt) -> Iterator[Line[Measurement]]:
    first: dict[str, Line[Measurement]] = {}
    repeated = []
    for line in lines:
        other = first.setdefault(repr(line.measurement), line)
        if other is line:
            yield line
        else:
            repeated.append(f"{line.place}: equal to {other.place}; it counts once.")
    _tell(repeated, "lines that stand there before", doubt)


def run_lines(lines: Iterable[Line[Measurement]]) -> list[Line[RunMeasurement]]:
    """The training runs among lines."""
    return [
        Line(each.path, each.number, each.measurement) for each in lines if isinstance(each.measurement, RunMeasurement)
    ]


def operator_lines(lines: Iterable[Line[Measurement]]) -> list[Line[OperatorMeasurement]]:
    """The operators among lines."""
    return [
        Line(each.path, each.number, each.measurement)
        for each in lines
        if isinstance(each.measurement, OperatorMeasurement)
    ]


Timed = tuple[Hashable, str, float]
"""Measured thing, place of its time, and the time in seconds."""


def timed(lines: Iterable[Line[Measurement]]) -> Iterator[Timed]:
    """Runs and operators by all they say of what ran: what differs in software has another `family` or versions."""
    for line in lines:
        each = line.measurement
        if isinstance(each, RunMeasurement):
            if each.measured.batch_time is not None:
                yield repr((each.problem, each.family, each.group)), line.place, each.measured.batch_time
        elif isinstance(each, OperatorMeasurement):
            yield repr(evolve(each, seconds=Seconds(1.0), spread=None, repeats=1, date=None)), line.place, each.seconds


def doubt_contradictions(measured: Iterable[Timed], noise: float, doubt: Doubt) -> None:
    """Tell of measurements of one thing whose times differ by more than `noise`, a relative error of each, explains."""
    most = exp(APART * sqrt(2.0) * noise)
    groups: dict[Hashable, list[tuple[float, str]]] = {}
    for what, place, seconds in measured:
        groups.setdefault(what, []).append((seconds, place))
    pairs = [(min(times), max(times)) for times in groups.values()]
    found = [
        f"{short_at} and {long_at} measure the same, but {format_seconds(long)} is {long / short:.3g}x "
        f"{format_seconds(short)}; noise explains {most:.2f}x. One line is wrong."
        for (short, short_at), (long, long_at) in pairs
        if long > most * short + STARTING and short_at != long_at
    ]
    _tell(found, "contradictions", doubt)


def _tell(sentences: Sequence[str], what: str, doubt: Doubt) -> None:
    for sentence in sentences[:TOLD]:
        doubt(sentence)
    if len(sentences) > TOLD:
        doubt(f"There are {len(sentences) - TOLD} more {what}.")
