"""How far something long is: one line on the terminal, nothing elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, ClassVar

from nest.cli.terminal import width_of
from nest.cli.time_left import TimeLeft, rounded
from nest.cli.time_left import at_most as bounded

if TYPE_CHECKING:
    from nest.instance import SearchProgress

PATIENCE = 2.0
"""Seconds before the line appears: what is quicker than that needs none."""

EVERY = 0.5
"""Seconds between two lines."""


PROVING = "proving"
"""What a second solver does."""


class _Line:
    """One line on standard error, fitted to the terminal so that it never wraps; removed by `clear`."""

    _shown: ClassVar[str] = ""
    """What stands on it now, whoever wrote it: there is one line for all."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._told = 0.0
        self._terminal = sys.stderr.isatty()

    def clear(self) -> None:
        """Remove the line."""
        if self._terminal and self._shown:
            self._put("")

    def wait(self, doing: str, ended: Event) -> None:
        """Show how long something takes, until it has ended."""
        while self._terminal and not ended.wait(EVERY):
            now = self._due()
            if now is not None:
                self._show(doing, [f"{now - self._begun:.0f} s so far"])

    def _due(self) -> float | None:
        """The time, when a line is to be shown now."""
        now = time.monotonic()
        if not self._terminal or now - self._begun < PATIENCE or now - self._told < EVERY:
            return None
        self._told = now
        return now

    def _show(self, doing: str, told: Sequence[str | None]) -> None:
        """Show what is being done and what is told of it, the most important first, as much as there is room for."""
        room = (width_of(sys.stderr) or 80) - 1  # A terminal wraps when its last column is written to.
        line = doing
        for part in (each for each in told if each):
            longer = f"{line}{': ' if line is doing else ', '}{part}"
            line = longer if len(longer) <= room else line
        self._put(line[:room])

    def _put(self, line: str) -> None:
        sys.stderr.write("\r" + line.ljust(len(self._shown)) + ("" if line else "\r"))
        sys.stderr.flush()
        _Line._shown = line


def clear_line() -> None:
    """Remove the line, whoever shows it: something is printed."""
    _Line().clear()


class ProgressLine(_Line):
    """How far a search or a proof is: the share explored, the time left, the best plan, the bound."""

    def __init__(self, doing: str) -> None:
        super().__init__()
        self._begin(doing)

    def _begin(self, doing: str) -> None:
        """Something else is done from now on."""
        self._doing, self._begun = doing, time.monotonic()
        self._pricing, self._bound, self._explored = TimeLeft(), TimeLeft(), TimeLeft()

    def __call__(self, standing: "SearchProgress") -> None:
        """Show how far it is, now and then."""
        if standing.proving and self._doing != PROVING:
            self._begin(PROVING)
        now = self._due()
        if now is None:
            return
        seconds = f"{now - self._begun:.0f} s"
        if standing.priced < 1:
            left = self._pricing.tell(now, standing.priced, 1.0)
            self._show("pricing candidates", [f"{standing.priced:.0%}", rounded(left), f"{seconds} so far"])
            return
        best, bound = standing.best, standing.bound
        # A search ends when its bound reaches its best plan, mostly earlier than it seems: plans get better meanwhile.
        left = self._explored.tell(now, standing.explored, 1.0) if best is None else self._bound.tell(now, bound, best)
        told = [f"{standing.explored:.1%} explored", bounded(left)]
        told.append("no plan yet" if best is None else f"best {best:.6g} s")
        if bound > 0:
            told += [None if best is None else f"gap {best / bound - 1:.2%}", f"no plan is faster than {bound:.6g} s"]
        self._show(f"{self._doing} for {seconds}", told)


@contextmanager
def progress_line(doing: str) -> Iterator[ProgressLine | None]:
    """Give the line, where standard error is a terminal, None elsewhere; `doing` is its first word."""
    if not sys.stderr.isatty():
        yield None
        return
    line = ProgressLine(doing)
    try:
        yield line
    finally:
        line.clear()


class ShareLine(_Line):
    """What is being done, the share that is, and the time left."""

    def __init__(self) -> None:
        super().__init__()
        self._left = TimeLeft()

    def tell(self, doing: str, share: float) -> None:
        """Show what is being done, now and then."""
        now = self._due()
        if now is not None:
            self._show(doing, [f"{share:.0%}", rounded(self._left.tell(now, share, 1.0))])


@contextmanager
def share_line() -> Iterator[Callable[[str, float], None] | None]:
    """Give what shows what is being done and the share that is, where standard error is a terminal; None elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    line = ShareLine()
    try:
        yield line.tell
    finally:
        line.clear()


@contextmanager
def waiting(doing: str) -> Iterator[None]:
    """Show what is being done and for how long, while it is: of what itself tells nothing."""
    line, ended = _Line(), Event()
    thread = Thread(target=line.wait, args=(doing, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        line.clear()


class StepLine(_Line):
    """A walk of several steps, such as problems to solve: what is being done, which step it is, and the time left."""

    def __init__(self) -> None:
        super().__init__()
        self._left = TimeLeft()

    def tell(self, doing: str, done: int, of: int | None, *, at_most: bool = False) -> None:
        """Show how far the walk is, now and then.

        Args:
            doing: what is being done, such as `solving with twice the bandwidth`.
            done: steps that are done.
            of: steps there are; None where nobody knows.
            at_most: whether there may be fewer.
        """
        now = self._due()
        if now is None:
            return
        if of is None:
            self._show(doing, [f"{done} done"])
        else:
            left, most = self._left.tell(now, done, of), "at most " if at_most else ""
            self._show(doing, [f"{done} of {most}{of}", bounded(left) if at_most else rounded(left)])


def step_line() -> StepLine:
    """The line; where standard error is no terminal, it stays silent."""
    return StepLine()
