"""Fresh processes, with the time and memory that each took."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from threading import Timer
from time import perf_counter

from attrs import frozen

REPOSITORY = Path(__file__).resolve().parent.parent.parent

MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes per unit of `ru_maxrss`: kilobytes on Linux, bytes on macOS (getrusage(2))."""

PATIENCE = 30.0
"""Seconds of one measure's processes after which it is not repeated: noise is small against so long a time."""


@frozen
class Run:
    """One process from start to exit.

    Attributes:
        seconds: wall-clock time.
        cpu: seconds of all processors together.
        memory: largest resident set, bytes.
        code: exit code; negative when a signal ended it.
        output: what it printed on standard output.
        errors: what it printed on standard error.
        stopped: whether it was ended for taking too long.
    """

    seconds: float
    cpu: float
    memory: float
    code: int
    output: str
    errors: str
    stopped: bool


NOTHING_KEPT = {"NEST_CACHE": ""}
"""What says, to this commit and to others, that nothing is kept from one run for the next."""


def run(
    arguments: Sequence[str], timeout: float, tree: Path = REPOSITORY, environment: Mapping[str, str] | None = None
) -> Run:
    """Run Python with `arguments` in a tree and wait for it, `timeout` seconds at most.

    Args:
        arguments: of Python.
        timeout: seconds.
        tree: where it runs.
        environment: variables; None: this process's own, and nothing is kept from one run for the next.
    """
    if environment is None:
        environment = {**os.environ, **NOTHING_KEPT}
    with TemporaryFile() as output, TemporaryFile() as errors:
        start = perf_counter()
        process = subprocess.Popen(
            [sys.executable, *arguments], cwd=tree, env=environment, stdout=output, stderr=errors
        )
        timer = Timer(timeout, process.kill)
        timer.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        finally:
            timer.cancel()
        seconds = perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for stream in (output, errors):
            stream.seek(0)
            texts.append(stream.read().decode("utf-8", "replace"))
    stopped = process.returncode < 0 and seconds >= timeout
    cpu = usage.ru_utime + usage.ru_stime
    return Run(seconds, cpu, float(usage.ru_maxrss * MAXRSS_UNIT), process.returncode, texts[0], texts[1], stopped)


def repeated(start: Callable[[], Run], times: int) -> list[Run]:
    """Up to `times` runs; fewer once they took `PATIENCE` seconds together or one was stopped."""
    runs: list[Run] = []
    while len(runs) < times and sum(each.seconds for each in runs) < PATIENCE and not any(r.stopped for r in runs):
        runs.append(start())
    return runs
