"""The terminal: how wide it is, and whether it shows colours."""

import os
from contextlib import suppress
from typing import TextIO

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
