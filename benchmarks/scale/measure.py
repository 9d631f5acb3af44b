"""What is measured: problems, limits on time and memory, and what the answers must be."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

Source = Path | Callable[[], Mapping[str, Any]]
"""A problem file, or what makes a problem."""

Answer = Mapping[str, Any]
"""What benchmarks/scale/child.py prints of one problem."""


@frozen
class Limit:
    """What a measure must keep to; None: no limit.

    Attributes:
        planning: formulating and solving, in process, seconds.
        process: `nest solve FILE --json` from start to exit, seconds.
        memory: largest resident set of a process, bytes.
    """

    planning: float | None = None
    process: float | None = None
    memory: float | None = None

    def told(self) -> str:
        """The limits in words."""
        parts = []
        if self.planning is not None:
            parts.append(f"planning {self.planning:g} s")
        if self.process is not None:
            parts.append(f"process {self.process:g} s")
        if self.memory is not None:
            parts.append(f"{self.memory / 1e6:g} MB")
        return ", ".join(parts) or "-"

    def broken(self, planning: float | None, process: float | None, memory: float) -> list[str]:
        """What is above its limit, in words; a time that was not measured breaks none."""
        told = []
        for name, seconds, most in (("planning", planning, self.planning), ("process", process, self.process)):
            if seconds is not None and most is not None and seconds > most:
                told.append(f"{name} {seconds:.3g} s is above {most:g} s")
        if self.memory is not None and memory > self.memory:
            told.append(f"{memory / 1e6:.0f} MB is above {self.memory / 1e6:g} MB")
        return told


@frozen
class Finding:
    """What the answers of a measure are.

    Attributes:
        told: in words.
        right: whether they are what they must be.
    """

    told: str
    right: bool


Check = Callable[[Sequence[Answer]], Finding]


@frozen
class Measure:
    """Some problems solved one after the other by one process.

    Attributes:
        name: unique, what `--only` takes.
        what: the problems in a few words.
        problems: files, or what makes them.
        limit: on the sum over the problems.
        check: judges the answers, in the order of the problems.
        whole: whether the command is timed as well.
    """

    name: str
    what: str
    problems: tuple[Source, ...]
    limit: Limit
    check: Check
    whole: bool = True


@frozen
class Series:
    """One problem at growing sizes.

    Attributes:
        name: unique, what `--only` takes.
        what: the problem in a few words.
        axis: what grows.
        points: sizes, ascending, each with what makes its problem.
        steepest: largest slope of log planning time over log size; None: no limit.
    """

    name: str
    what: str
    axis: str
    points: tuple[tuple[int, Source], ...]
    steepest: float | None = None
