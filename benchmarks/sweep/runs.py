"""One sweep in processes of its own: what it took, killed or not."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from attrs import define, field, frozen

SAMPLE = 0.5
"""Seconds between two looks at the memory of processes."""


@frozen
class Cost:
    """What a sweep took.

    Attributes:
        cpu: seconds of user and system time, of all processes.
        wall: seconds.
        early: the most bytes one process had resident in the first quarter of the time.
        most: the same over all the time.
    """

    cpu: float
    wall: float
    early: int
    most: int


@define
class _Memory:
    """The largest process of a group, seen twice a second."""

    seen: list[tuple[float, int]] = field(factory=list)
    _ended: threading.Event = field(factory=threading.Event)

    def watch(self, group: int) -> None:
        while not self._ended.wait(SAMPLE):
            self.seen.append((time.monotonic(), max(_resident(group), default=0)))

    @contextmanager
    def over(self, group: int) -> Iterator[None]:
        watcher = threading.Thread(target=self.watch, args=(group,))
        watcher.start()
        try:
            yield
        finally:
            self._ended.set()
            watcher.join()

    def most(self, until: float = float("inf")) -> int:
        return max((size for moment, size in self.seen if moment <= until), default=0)


def _resident(group: int) -> Iterator[int]:
    """Resident bytes of each process of a process group (Linux, proc(5))."""
    page = os.sysconf("SC_PAGE_SIZE")
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(entry.name)) == group:
                yield int((entry / "statm").read_text().split()[1]) * page
        except (OSError, IndexError):
            continue


def sweep(study: Path, output: Path, options: Sequence[str]) -> Cost:
    """Run a sweep to its end.

    Raises:
        RuntimeError: it failed.
    """
    started, memory = time.monotonic(), _Memory()
    process = _started(study, output, options)
    with memory.over(process.pid):
        _, status, used = os.wait4(process.pid, 0)
    wall = time.monotonic() - started
    if status:
        raise RuntimeError(f"the sweep ended with {os.waitstatus_to_exitcode(status)}")
    return Cost(used.ru_utime + used.ru_stime, wall, memory.most(started + wall / 4), memory.most())


def killed(study: Path, output: Path, options: Sequence[str], after: float) -> None:
    """Start a sweep and kill all its processes after so many seconds."""
    process = _started(study, output, options)
    time.sleep(after)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _started(study: Path, output: Path, options: Sequence[str]) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "nest", "sweep", str(study), "--output", str(output), *options]
    return subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)


def on_dask(folder: Path, workers: int, run: Callable[[list[str]], Cost]) -> Cost:
    """A sweep on a scheduler and workers that are processes of their own; their CPU time counts as the sweep's."""
    address, python = folder / "scheduler.json", [sys.executable, "-m"]
    options = ["--no-dashboard", "--scheduler-file", str(address)]
    scheduler = [*python, "distributed.cli.dask_scheduler", "--port", "0", *options]
    worker = [*python, "distributed.cli.dask_worker", "--nthreads", "1", "--no-nanny", *options]
    commands = [scheduler, *[worker] * workers]
    processes = [subprocess.Popen(each, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) for each in commands]
    try:
        while not address.exists():
            time.sleep(0.1)
        where = json.loads(address.read_text(encoding="utf-8"))["address"]
        own = run(["--engine", "dask", "--scheduler", where])
    finally:
        cpu = 0.0
        for process in processes:
            process.terminate()
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            cpu += used.ru_utime + used.ru_stime
    return Cost(own.cpu + cpu, own.wall, own.early, own.most)
