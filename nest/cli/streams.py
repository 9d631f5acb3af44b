"""Standard output holds results only: what plug-ins print goes to standard error, whichever way they print."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from io import UnsupportedOperation
from threading import current_thread, main_thread
from typing import Any, TextIO, cast

STANDARD_OUTPUT, STANDARD_ERROR = 1, 2
"""File descriptors (POSIX.1-2017, unistd.h)."""


class _Results:
    """Stands in for `sys.stdout`: results are written by the main thread, and plug-ins run in others."""

    def __init__(self, results: TextIO) -> None:
        self._results = results

    def __getattr__(self, member: str) -> Any:
        return getattr(self._results if current_thread() is main_thread() else sys.stderr, member)

    def close(self) -> None:
        """Nothing: no plug-in may close what results go to."""


@contextmanager
def results_apart() -> Iterator[Callable[[], None]]:
    """Keep what plug-ins print out of standard output; what is given ends that early, for commands of their own."""
    with ExitStack() as changes:
        if sys.stdout is None:  # The caller has closed it.
            yield changes.close
            return
        results = changes.enter_context(_moved()) if _is_file_of_process(sys.stdout) else sys.stdout
        changes.enter_context(redirect_stdout(cast("TextIO", _Results(results))))
        yield changes.close


def _is_file_of_process(stream: TextIO) -> bool:
    """Whether `stream` is what other programs and libraries in C print to, too."""
    with suppress(AttributeError, UnsupportedOperation, ValueError):
        return stream.fileno() == STANDARD_OUTPUT and sys.stderr.fileno() == STANDARD_ERROR
    return False


@contextmanager
def _moved() -> Iterator[TextIO]:
    """A stream to standard output, while its file descriptor leads to standard error."""
    whole = sys.stdout
    whole.flush()
    kept = os.dup(STANDARD_OUTPUT)
    os.dup2(STANDARD_ERROR, STANDARD_OUTPUT)
    try:
        with open(kept, "w", encoding=whole.encoding, errors=whole.errors, closefd=False) as results:
            yield results
    finally:
        os.dup2(kept, STANDARD_OUTPUT)
        os.close(kept)
