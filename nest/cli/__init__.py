"""The command line: `app` and a file per command; and Ctrl-C while nest is still being loaded.

Belongs here: options, output, progress, and a file per command. Does not: answers; `nest.api` gives them.

The command then ends with a sentence, as it does later (`nest.cli.output`); so it does while Python ends.
"""

import os
import sys
from signal import SIGINT, default_int_handler, getsignal, signal
from typing import Any

NAMES = ("nest", "nest.exe")
"""How the command's script may be called."""


def stop_at_once() -> None:
    """Let Ctrl-C end this process, if it is the command and nobody ignores or handles interrupts."""
    called = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""  # noqa: PTH119 - loads nothing
    as_module = called == "-m" and "nest" in sys.orig_argv  # Python says so until it has found the module.
    if called in NAMES or as_module:
        _is_command.append(True)
        stop_again()


_is_command: list[bool] = []
"""Something, if this process is the command."""


def stop_again() -> None:
    """Let Ctrl-C end this process, if it is the command, once nobody turns `KeyboardInterrupt` into a sentence."""
    if _is_command and getsignal(SIGINT) is default_int_handler:
        signal(SIGINT, _stop)


def _stop(*_: Any) -> None:
    os.write(2, b"nest: stopped.\n")
    os._exit(130)


def raise_again() -> None:
    """Let Ctrl-C raise `KeyboardInterrupt` again, once somebody turns that into a sentence."""
    if getsignal(SIGINT) is _stop:
        signal(SIGINT, default_int_handler)
