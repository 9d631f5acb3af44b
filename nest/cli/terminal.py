"""The terminal: its width and colours, Ctrl-C, and standard output, which holds results only."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from io import UnsupportedOperation
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from nest.solve.effort import Deadline

USUAL = 80
"""Columns of a terminal that does not say how many it has (`shutil.get_terminal_size` takes the same)."""


def width_of(stream: TextIO) -> int | None:
    """Columns of the terminal `stream` leads to; None where it leads to none.

    `COLUMNS` of the environment wins over what the terminal says, as it does in `shutil.get_terminal_size`, which asks
    the terminal of the process' standard output alone.
    """
    if not stream.isatty():
        return None
    with suppress(KeyError, ValueError):
        if int(os.environ["COLUMNS"]) > 0:
            return int(os.environ["COLUMNS"])
    with suppress(OSError, ValueError):
        return os.get_terminal_size(stream.fileno()).columns or USUAL
    return USUAL


def is_coloured(stream: TextIO) -> bool:
    """Whether `stream` leads to a terminal that shows colours, and nobody asks for none (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


STOPPING = b"\nnest: stopping with what is known; Ctrl-C again ends at once.\n"


@contextmanager
def stoppable(deadline: "Deadline") -> Iterator[None]:
    """While this lasts, Ctrl-C lets the time of `deadline` be up; once more, it ends the command."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or current_thread() is not main_thread():
        yield  # Whoever started nest ignores interrupts, or handles them.
        return

    def stop(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        deadline.stop()
        if sys.stderr.isatty():
            os.write(sys.stderr.fileno(), STOPPING)  # No stream: it may be in the middle of a line.

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


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
    original = os.dup(STANDARD_OUTPUT)
    os.dup2(STANDARD_ERROR, STANDARD_OUTPUT)
    try:
        with open(original, "w", encoding=whole.encoding, errors=whole.errors, closefd=False) as results:
            yield results
    finally:
        os.dup2(original, STANDARD_OUTPUT)
        os.close(original)
