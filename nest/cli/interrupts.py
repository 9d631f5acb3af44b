"""Ctrl-C: once ends a search as its time limit does, twice ends the command."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nest.solve.effort import Deadline

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
