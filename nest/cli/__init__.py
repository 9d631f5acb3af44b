"""The command line: `app` and a file per command; Ctrl-C while nest is loading.

Belongs here: options, output, progress, and a file per command. Does not: answers; `nest.api` gives them.

While modules load and while Python ends, Ctrl-C ends the command with the same sentence as in `nest.cli.output`.
"""

import os
import sys
from signal import SIGINT, default_int_handler, getsignal, signal
from typing import Any

NAMES = ("nest", "nest.exe")  # Names of the command's script.


def stop_at_once() -> None:
    """Let Ctrl-C end this process, if it is the command and interrupts are neither ignored nor handled."""
    called = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""  # noqa: PTH119 - loads nothing
    as_module = called == "-m" and "nest" in sys.orig_argv  # Python says so until it has found the module.
    if called in NAMES or as_module:
        _is_command.append(True)
        stop_again()


_is_command: list[bool] = []  # Not empty, if this process is the command.


def stop_again() -> None:
    """Let Ctrl-C end this process, if it is the command, after `KeyboardInterrupt` is no longer caught."""
    if _is_command and getsignal(SIGINT) is default_int_handler:
        signal(SIGINT, _stop)


def _stop(*_: Any) -> None:
    os.write(2, b"nest: stopped.\n")
    os._exit(130)


def raise_again() -> None:
    """Let Ctrl-C raise `KeyboardInterrupt` again, where it is caught."""
    if getsignal(SIGINT) is _stop:
        signal(SIGINT, default_int_handler)
