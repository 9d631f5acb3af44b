"""Runs a command of nest into a file and then on this terminal with one width after the other, all in one process.

Usage, in the folder of the repository: python -m tests.cli.widths FILE WIDTH,WIDTH,... ARGUMENTS...
"""

import fcntl
import os
import struct
import sys
import termios

from nest.cli import app

END = "\f"
"""Behind the output at one width, with the exit code before it and another one before that."""


def _run(arguments: list[str]) -> None:
    sys.argv = ["nest", *arguments]
    code: object = 0
    try:
        app.main()
    except SystemExit as stop:
        code = stop.code or 0
    sys.stdout.write(f"{END}{code}{END}")
    sys.stdout.flush()


def _main(file: str, widths: str, *arguments: str) -> None:
    terminal = os.dup(sys.stdout.fileno())
    into = os.open(file, os.O_WRONLY | os.O_CREAT)
    os.dup2(into, sys.stdout.fileno())
    _run([*arguments])
    os.dup2(terminal, sys.stdout.fileno())
    for width in widths.split(","):
        fcntl.ioctl(sys.stdout.fileno(), termios.TIOCSWINSZ, struct.pack("HHHH", 50, int(width), 0, 0))
        _run([*arguments])


if __name__ == "__main__":
    _main(*sys.argv[1:])
