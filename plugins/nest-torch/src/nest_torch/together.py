"""Operators measured while other processes of this machine run the same, as the ranks of a training run do."""

import os
import queue
from collections.abc import Sequence
from statistics import fmean
from time import perf_counter
from typing import Any

import torch
from attrs import evolve, frozen

from nest.errors import InputError
from nest.spec.measurements import OperatorMeasurement
from nest.units import Seconds
from nest_torch.experiments import Experiment
from nest_torch.machine import machine
from nest_torch.profiling import Effort, Skipped, profile

PATIENCE = 60.0
"""Seconds that processes may take beyond the time they measure: to start, and for the last repeats."""

Found = OperatorMeasurement | Skipped


@frozen
class Sharing:
    """Processes that share the cores of this machine.

    Attributes:
        processes: of the run.
        at_once: those that have cores at the same time.
    """

    processes: int
    at_once: int

    @classmethod
    def of(cls, processes: int) -> "Sharing":
        """Let as many processes run at once as there are cores for their threads, at least one."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return cls(processes, max(1, min(processes, cores // torch.get_num_threads())))

    @property
    def turns(self) -> float:
        """Seconds of a process over those in which it has a core."""
        return self.processes / self.at_once


def profile_together(rows: Sequence[tuple[Experiment, str]], processes: int, effort: Effort) -> list[Found]:
    """Measure `rows` on CPUs in several processes at once; the mean over processes counts.

    Beyond the cores of this machine processes take turns, and a time grows by their number.

    Raises:
        InputError: a process failed.
    """
    import multiprocessing

    sharing = Sharing.of(processes)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    children = [
        context.Process(target=_child, args=(rows, effort, torch.get_num_threads(), results), daemon=True)
        for _ in range(sharing.at_once)
    ]
    for child in children:
        child.start()
    try:
        found = _awaited(results, children, effort.seconds + PATIENCE)
    finally:
        for child in children:
            child.terminate()
    return [_joint(each, sharing) for each in zip(*found, strict=False)]


def _awaited(results: Any, children: Sequence[Any], seconds: float) -> list[list[Found]]:
    """Return the measurements of each process, or raise what stopped one."""
    found: list[list[Found]] = []
    deadline = perf_counter() + seconds
    while len(found) < len(children):
        try:
            error, each = results.get(timeout=0.2)
        except queue.Empty:
            if perf_counter() > deadline or any(child.exitcode is not None for child in children):
                raise InputError("--processes: a process ended before it had measured everything.") from None
            continue
        if error:
            raise InputError(f"--processes: a process failed: {error}.")
        found.append(each)
    return found


def _child(rows: Sequence[tuple[Experiment, str]], effort: Effort, threads: int, results: Any) -> None:
    """Measure, then keep the core busy for those that still do."""
    torch.set_num_threads(threads)
    try:
        found = list(profile(rows, machine("cpu"), effort, lambda *_: None))
    except Exception as error:  # Whatever goes wrong in a process must reach the one that waits for it.
        results.put((" ".join(str(error).split())[:200] or type(error).__name__, []))
        return
    results.put(("", found))
    numbers = torch.randn(256, 256)
    while True:
        torch.mm(numbers, numbers)


def _joint(found: Sequence[Found], sharing: Sharing) -> Found:
    """One measurement for all processes."""
    first, measured = found[0], [each for each in found if isinstance(each, OperatorMeasurement)]
    if not isinstance(first, OperatorMeasurement) or len(measured) < len(found):
        return next(each for each in found if isinstance(each, Skipped))
    return evolve(
        first,
        seconds=Seconds(fmean(each.seconds for each in measured) * sharing.turns),
        spread=max(each.spread or 0.0 for each in measured),
        device=f"{first.device}, {sharing.processes} processes",
    )
