"""Threads that calls into plug-ins run in, so that one that never returns is left behind.

A signal would interrupt the main thread only, and a process could be given nothing that cannot be pickled. Handing a
call over and its answer back takes 16 microseconds, 60 on a busy machine (2026-11-21, 2 cores of an AMD EPYC, Python
3.11); a solve asks plug-ins some 10,000 times.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from threading import Thread, local
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_here = local()


class TimedOut(Exception):  # noqa: N818 - an event, put into words by whoever waited
    """A call has not returned in time."""


class Raised(Exception):  # noqa: N818 - wraps what was raised
    """A call raised something.

    Attributes:
        error: what.
        text: its class and message in one line.
    """

    def __init__(self, error: BaseException, text: str) -> None:
        self.error = error
        self.text = text
        super().__init__(text)


def inside() -> bool:
    """Whether this is the thread of a worker."""
    return getattr(_here, "serving", False)


def message(error: BaseException) -> str:
    """The class and message of an error in one line of at most 300 characters."""
    try:
        message = " ".join(str(error).split())
    except Exception:  # A foreign error may fail to say what it is.
        message = ""
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return text if len(text) <= 300 else text[:297] + "..."


class Worker:
    """A daemon thread that runs one call after the other; the end of the process does not wait for it."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._answers: SimpleQueue[tuple[Any, Raised | None, float]] = SimpleQueue()
        self._thread = Thread(target=_serve, args=(self._calls, self._answers), name="nest plug-in", daemon=True)
        self._thread.start()

    def __del__(self) -> None:
        self._calls.put(None)

    @property
    def alive(self) -> bool:
        """Whether the thread is there; in a process forked from that which made it, it is not."""
        return self._thread.is_alive()

    def call(self, function: Callable[[], Any], seconds: float) -> tuple[Any, Raised | None, float]:
        """What `function` returned, what it raised, and the seconds it took.

        Raises:
            TimedOut: it has not returned within `seconds`; the worker must not be used any more.
        """
        self._calls.put(function)
        try:
            return self._answers.get(timeout=seconds)
        except Empty:
            self._end()
            raise TimedOut from None

    def _end(self) -> None:
        """Ask the thread to end: one that computes does at once, one that waits does once it returns."""
        if self._thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread.ident), ctypes.py_object(SystemExit))


def _serve(
    calls: SimpleQueue[Callable[[], Any] | None], answers: SimpleQueue[tuple[Any, Raised | None, float]]
) -> None:
    _here.serving = True
    while (function := calls.get()) is not None:
        start = perf_counter()
        found, raised = None, None
        try:
            found = function()
        except BaseException as error:  # Also SystemExit: it must end neither this thread nor, unseen, the caller.
            raised = Raised(error, message(error))
        answers.put((found, raised, perf_counter() - start))
        function = found = raised = None


@contextmanager
def process_state_restored() -> Iterator[None]:
    """Put back the working directory, the standard streams and a lowered limit of recursion after a call.

    Files of a problem are found from the working directory, results go to the standard streams, and reading nested
    input takes recursion. A raised limit stays: the plug-in may need it.
    """
    folder, streams, depth = _folder(), (sys.stdout, sys.stderr), sys.getrecursionlimit()
    try:
        yield
    finally:
        if folder is not None and _folder() != folder:
            with suppress(OSError):
                os.chdir(folder)
        sys.stdout, sys.stderr = streams
        if sys.getrecursionlimit() < depth:
            sys.setrecursionlimit(depth)


def _folder() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109 - called twice for each call into a plug-in
    except OSError:  # It was removed.
        return None
