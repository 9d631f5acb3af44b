"""A command on a terminal of some width, and what it prints there."""

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from attrs import frozen

from tests import processes


@frozen
class Shown:
    """What a command printed on a terminal.

    Attributes:
        code: its exit code.
        output: on standard output, lines as a terminal gets them, ended by a line feed alone.
        errors: on standard error; "" where both went to one terminal.
    """

    code: int
    output: str
    errors: str

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()


def on_terminal(
    arguments: list[str],
    width: int,
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    seconds: float = 120.0,
    errors: Path | None = None,
) -> Shown:
    """`nest ARGUMENTS` with standard output on a terminal of `width` columns; standard error on another, or in a file.

    Args:
        arguments: of the command.
        width: columns of the terminal.
        folder: where the command runs.
        environment: variables beside those of this process.
        seconds: after which the command counts as hung.
        errors: where standard error goes, in place of a terminal.
    """
    return _shown(["-m", "nest", *arguments], width, folder, environment, seconds, errors)


def at_widths(arguments: list[str], widths: Sequence[int], file: Path, folder: Path) -> tuple[str, list[Shown]]:
    """What `nest ARGUMENTS` prints into a file, and on a terminal of each width: one process for all of them.

    Args:
        arguments: of the command.
        widths: columns of the terminal, one after the other.
        file: does not exist yet.
        folder: of the repository, where the command runs.
    """
    command = ["-m", "tests.cli.widths", str(file), ",".join(map(str, widths)), *arguments]
    found = _shown(command, widths[0], folder, {}, 120.0)
    assert found.code == 0, found.errors
    piped, code, _ = file.read_text().split("\f")
    assert code == "0", found.errors
    told = found.output.split("\f")
    return piped, [Shown(int(code), text, "") for text, code in zip(told[:-1:2], told[1::2], strict=True)]


def _shown(
    arguments: list[str],
    width: int,
    folder: Path | None,
    environment: Mapping[str, str] | None,
    seconds: float,
    errors: Path | None = None,
) -> Shown:
    """Python with these arguments on a terminal."""
    ends = [pty.openpty() for _ in range(2 if errors is None else 1)]
    for _, inner in ends:
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    outside = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR", "TERM")}
    told = {"TERM": "xterm-256color", **(environment or {})}
    files = [os.devnull, *(os.ttyname(inner) for _, inner in ends), *([] if errors is None else [str(errors)])]
    command = [sys.executable, *arguments]
    with ThreadPoolExecutor(1) as reader:
        shown = reader.submit(_read, [outer for outer, _ in ends], time.monotonic() + seconds)
        try:
            code = processes.fork(command, files, cwd=folder, env={**outside, **told}, timeout=seconds)
        finally:
            for _, inner in ends:
                os.close(inner)
    output, *told_errors = shown.result()
    return Shown(code, output, told_errors[0] if errors is None else errors.read_text(encoding="utf-8"))


def _read(files: list[int], until: float) -> list[str]:
    """What is written to terminals until all who could write have gone."""
    told = dict.fromkeys(files, b"")
    left = list(files)
    while left and time.monotonic() < until:
        ready, _, _ = select.select(left, [], [], 1.0)
        for file in ready:
            try:
                read = os.read(file, 1 << 16)
            except OSError:  # Linux: nobody writes any more.
                read = b""
            told[file] += read
            if not read:
                left.remove(file)
    for file in files:
        os.close(file)
    return [told[file].decode().replace("\r\n", "\n") for file in files]
