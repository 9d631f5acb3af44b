"""How far a search or a proof is: one line on the terminal, nothing elsewhere."""

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nest.instance import Standing


class ProgressLine:
    """One line on the terminal, from two seconds on: the best plan, the bound, their gap, the share explored."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._shown = 0.0
        self._line = ""

    def __call__(self, standing: "Standing") -> None:
        """Show how far it is, now and then."""
        now = time.monotonic()
        if standing.seconds < 2 or now - self._shown < 0.5:
            return
        self._shown = now
        best, bound = standing.best, standing.bound
        told = ["no plan yet" if best is None else f"best {best:.6g} s"]
        if bound > 0:
            told += [] if best is None else [f"gap {best / bound - 1:.2%}"]
            told.append(f"no plan is faster than {bound:.6g} s")
        told.append(f"{standing.explored:.1%} explored")
        self._put(f"{self._doing} for {standing.seconds:.0f} s: {', '.join(told)}")

    def clear(self) -> None:
        """Remove the line."""
        if self._line:
            self._put("")

    def _put(self, line: str) -> None:
        sys.stderr.write("\r" + line.ljust(len(self._line)) + ("" if line else "\r"))
        sys.stderr.flush()
        self._line = line


def progress_line(doing: str) -> ProgressLine | None:
    """The line, where standard error is a terminal; `doing` is its first word."""
    return ProgressLine(doing) if sys.stderr.isatty() else None


class ShareLine(ProgressLine):
    """One line on the terminal, from two seconds on: what is being done, and the share that is."""

    def __init__(self) -> None:
        super().__init__("")
        self._begun = time.monotonic()

    def tell(self, doing: str, share: float) -> None:
        """Show what is being done, now and then."""
        now = time.monotonic()
        if now - self._begun > 2 and now - self._shown > 0.5:
            self._shown = now
            self._put(f"{doing}: {share:.0%}")


def share_line() -> ShareLine | None:
    """The line, where standard error is a terminal."""
    return ShareLine() if sys.stderr.isatty() else None
