"""Commands that are timed from start to exit, and their times: CPU, wall clock, memory."""

from collections.abc import Mapping

from attrs import field, frozen

from benchmarks.scale.measure import Source
from benchmarks.scale.processes import Run

YARDSTICK = "solve"
"""The command whose CPU time says how fast the machine is."""

YARDSTICK_SECONDS = 2.0
"""CPU seconds of the yardstick on the machine that limits are meant for; elsewhere times are scaled to it."""


@frozen
class Command:
    """A command of nest.

    Attributes:
        name: unique, what `--only` takes.
        what: what is asked, in a few words.
        asked: its arguments, in which `{folder}` stands for a folder of its own and `{NAME}` for a problem's file.
        problems: by name, a problem file or what makes it.
        before: arguments of commands that come first and are not timed.
        keeps: whether answers are kept in the folder (`NEST_CACHE`).
        cpu: seconds of all processors together that it may take, scaled; None: no limit.
        memory: largest resident set that a process of it may have, bytes; None: no limit.
        wanted: what stands in what it prints.
    """

    name: str
    what: str
    asked: tuple[str, ...]
    problems: Mapping[str, Source]
    before: tuple[tuple[str, ...], ...] = ()
    keeps: bool = field(default=False, kw_only=True)
    cpu: float | None = field(default=None, kw_only=True)
    memory: float | None = field(default=None, kw_only=True)
    wanted: str = field(default="", kw_only=True)

    @property
    def limit(self) -> str:
        """The limits in words."""
        parts = [] if self.cpu is None else [f"{self.cpu:g} s"]
        return ", ".join([*parts, *([] if self.memory is None else [f"{self.memory / 1e6:g} MB"])]) or "-"


@frozen
class Least:
    """The least that some runs took.

    Attributes:
        cpu: seconds of all processors together.
        seconds: by the clock.
        memory: largest resident set of a process, bytes.
    """

    cpu: float
    seconds: float
    memory: float

    @classmethod
    def of(cls, runs: list[Run]) -> "Least":
        """Of runs of the same command: what else the machine does only adds."""
        return cls(*(min(getattr(each, name) for each in runs) for name in ("cpu", "seconds", "memory")))


@frozen
class Timing:
    """A command carried out.

    Attributes:
        command: the command.
        here: what it took in this tree.
        there: what it took in another commit; None: there is none, or it failed there.
        factor: seconds on the machine that limits are meant for, for each second here.
        wrong: what is wrong, in words; empty: nothing.
    """

    command: Command
    here: Least
    there: Least | None
    factor: float
    wrong: str

    @property
    def scaled(self) -> float:
        """CPU seconds on the machine that limits are meant for."""
        return self.here.cpu * self.factor

    @property
    def failures(self) -> tuple[str, ...]:
        """What is wrong, and what is above its limit, in words."""
        most, memory = self.command.cpu, self.command.memory
        told = [self.wrong] if self.wrong else []
        if most is not None and self.scaled > most:
            told.append(f"CPU {self.scaled:.3g} s, scaled, is above {most:g} s")
        if memory is not None and self.here.memory > memory:
            told.append(f"{self.here.memory / 1e6:.0f} MB is above {memory / 1e6:g} MB")
        return tuple(told)
