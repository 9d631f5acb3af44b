"""Progress of measuring: one line on a terminal, nothing elsewhere."""

import sys
from types import TracebackType


class Progress:
    """One line on standard error that says what is being measured."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._line = ""

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._put("")

    def __call__(self, index: int, told: str) -> None:
        """Say that experiment `index`, counted from 0, is `told`."""
        self._put(f"{index + 1} of {self._count}: {told}"[:110])

    def _put(self, line: str) -> None:
        if sys.stderr.isatty() and (line or self._line):
            sys.stderr.write("\r" + line.ljust(len(self._line)) + ("" if line else "\r"))
            sys.stderr.flush()
            self._line = line
