"""Progress: one line on the terminal, nothing elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Timer
from typing import TYPE_CHECKING, ClassVar, TypeVar

from nest.units import format_seconds, percent

if TYPE_CHECKING:
    from rich.progress import Progress

    from nest.instance import SearchProgress

PATIENCE = 2.0  # Seconds before the line appears.
EVERY = 0.5  # Seconds between two changes of the line.

Shows = TypeVar("Shows")

PROVING = "proving"  # Word for the work of a second solver.


class Line:
    """One line on standard error, cut to the terminal's width so that it never wraps; removed by `clear`."""

    _bar: ClassVar["Progress | None"] = None  # The bar shown now, one for all lines.
    _phase: ClassVar[object] = None  # The phase whose pace is known.

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._changed = 0.0
        self._terminal = sys.stderr.isatty()

    def clear(self) -> None:
        """Remove the line."""
        if Line._bar is not None:
            Line._bar.stop()
            Line._bar = None

    def show(
        self,
        doing: str,
        facts: tuple[str, ...] = (),
        *,
        done: float = 0.0,
        goal: float = 1.0,
        left: str = "about {} left",
        phase: object = None,
    ) -> None:
        """Show the present work, at intervals.

        Args:
            doing: in a few words.
            facts: on it, the most important first; cut to the terminal's width.
            done: of `goal`; 0: unknown.
            goal: may move.
            left: format of the time left.
            phase: a change restarts the pace; None: the same as long as this line.
        """
        now = time.monotonic()
        if not self._terminal or now - self._begun < PATIENCE or now - self._changed < EVERY:
            return
        self._changed = now
        if Line._bar is None:
            Line._bar, Line._phase = _bar(), None
        if Line._phase != (phase or self):
            Line._phase = phase or self
            for task in Line._bar.task_ids:
                Line._bar.remove_task(task)
            Line._bar.add_task(doing, total=goal, facts=facts, left=left)
        Line._bar.update(Line._bar.task_ids[0], completed=done, total=goal, description=doing, facts=facts, left=left)
        Line._bar.start()


def _bar() -> "Progress":
    """Return a line of rich, which measures the pace."""
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn, Task
    from rich.text import Text

    class Words(ProgressColumn):
        """The present work, and facts on it."""

        def render(self, task: Task) -> Text:
            known = [*task.fields["facts"], f"{task.elapsed or 0.0:.0f} s so far"]
            if task.time_remaining:
                known.insert(1, task.fields["left"].format(rounded(task.time_remaining)))
            return Text(f"{task.description}: {', '.join(known)}", no_wrap=True, overflow="ellipsis")

    # Nothing is redirected: what nest prints, it prints after `clear`.
    return Progress(
        Words(),
        console=Console(file=sys.stderr),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        refresh_per_second=1 / EVERY,
        get_time=time.monotonic,
    )


def rounded(seconds: float) -> str:
    """Format a time, rounded: `8 s`, `40 s`, `5 min`."""
    if seconds < 9.5:
        return f"{max(round(seconds), 1)} s"
    if seconds < 57.5:
        return f"{5 * round(seconds / 5)} s"
    return f"{max(round(seconds / 60), 1)} min" if seconds < 3570 else f"{seconds / 3600:.1f} h"


def clear_line() -> None:
    """Remove the line before something is printed."""
    Line().clear()


class ProgressLine(Line):
    """Progress of a search or a proof: the share explored, the time left, the best plan, the bound."""

    def __init__(self, doing: str) -> None:
        super().__init__()
        self._doing = doing

    def __call__(self, standing: "SearchProgress") -> None:
        """Show the progress, at intervals."""
        if standing.priced < 1:
            self.show("pricing candidates", (percent(standing.priced, 0),), done=standing.priced, phase="pricing")
            return
        best, bound = standing.best, standing.bound
        doing = PROVING if standing.proving else self._doing
        facts: tuple[str, ...] = (
            f"{percent(standing.explored)} explored",
            "no plan yet" if best is None else f"best {format_seconds(best)}",
        )
        if bound > 0:
            facts += () if best is None else (f"gap {percent(best / bound - 1)}",)
            facts += (f"lower bound {format_seconds(bound)}",)
        # A search ends when its bound reaches its best plan, mostly earlier than it seems: plans get better meanwhile.
        done, goal = (standing.explored, 1.0) if best is None else (bound, best)
        self.show(doing, facts, done=done, goal=goal, left="at most {} left", phase=(doing, best is None))


def progress_line(doing: str) -> AbstractContextManager[ProgressLine | None]:
    """Yield the line if standard error is a terminal, else None; `doing` is its first word."""
    line = ProgressLine(doing)
    return _on_terminal(line, line)


def share_line() -> AbstractContextManager[Callable[[str, float], None] | None]:
    """Yield a function that shows work and its share done if standard error is a terminal, else None."""
    line = Line()
    return _on_terminal(line, lambda doing, share: line.show(doing, (percent(share, 0),), done=share))


@contextmanager
def _on_terminal(line: Line, shows: Shows) -> Iterator[Shows | None]:
    try:
        yield shows if sys.stderr.isatty() else None
    finally:
        line.clear()


@contextmanager
def spinner(doing: str) -> Iterator[None]:
    """Show work that reports no progress, and its duration, while it lasts."""
    line = Line()
    timer = Timer(PATIENCE, line.show, (doing,))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        line.clear()


class StepLine(Line):
    """Progress of several steps, such as problems to solve: work, step, and the time left.

    Silent if standard error is no terminal.
    """

    def tell(self, doing: str, done: int, of: int | None, *, at_most: bool = False) -> None:
        """Show the progress, at intervals.

        Args:
            doing: such as `solving with twice the bandwidth`.
            done: finished steps.
            of: all steps; None: unknown.
            at_most: there may be fewer.
        """
        if of is None:
            self.show(doing, (f"{done} done",))
        elif at_most:
            self.show(doing, (f"{done} of at most {of}",), done=done, goal=of, left="at most {} left")
        else:
            self.show(doing, (f"{done} of {of}",), done=done, goal=of)
