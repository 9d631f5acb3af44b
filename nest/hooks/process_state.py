"""Process state that calls into plug-ins must not change."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def process_state_restored() -> Iterator[None]:
    """Restore the working directory, the standard streams and a lowered recursion limit after a call.

    Files of a problem are found from the working directory, results go to the standard streams, and nested input needs
    recursion. A raised limit stays: the plug-in may need it.
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
