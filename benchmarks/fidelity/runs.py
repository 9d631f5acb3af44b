"""Measured runs, read and taken apart; those that cannot be priced are counted by reason."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy
from attrs import evolve
from numpy.typing import NDArray

import nest
from nest.errors import InputError
from nest.hooks.registry import Registry
from nest.spec.measurements import RunMeasurement
from nest_calibrate.generations import MeasuredRun, taken_apart
from nest_calibrate.lines import Line, read_lines, run_lines

Told = Callable[[str], None]
"""What is told of progress."""


def read_runs(paths: Sequence[Path]) -> list[Line[RunMeasurement]]:
    """The runs with a step time among the measurements of files (docs/reference/measurements.md).

    Raises:
        InputError: a file cannot be read, or holds no run.
    """
    found = []
    for path in paths:
        runs = [each for each in run_lines(read_lines([path])) if each.measurement.measured.batch_time is not None]
        if not runs:
            raise InputError(f"{path}: there are no runs in it.")
        found += runs
    return found


def priced(runs: Sequence[Line[RunMeasurement]], known: Registry, told: Told) -> tuple[list[MeasuredRun], Counter[str]]:
    """The runs that can be priced, in their order, and how many cannot, by reason."""
    found: list[MeasuredRun] = []
    refused: Counter[str] = Counter()
    for index, each in enumerate(runs):
        told(f"pricing {index + 1} of {len(runs)} runs")
        try:
            found.extend(taken_apart([each], known))
        except InputError as error:
            refused[reason(str(error))] += 1
    return found, refused


def by_published_figures(runs: Sequence[MeasuredRun], known: Registry) -> NDArray[numpy.float64]:
    """Seconds of each run as on a device that no calibration knows, by its published figures alone. Shape `(runs,)`."""
    seconds = []
    for each in runs:
        problem = each.breakdown.problem
        device = evolve(each.device, name="bare", generation="")
        plan = nest.evaluate(evolve(problem, cluster=evolve(problem.cluster, device=device)), plugins=known)
        assert plan.batch_time is not None
        seconds.append(plan.batch_time)
    return numpy.array(seconds)


def reason(message: str) -> str:
    """The first clause of a refusal, without the run's place and with figures left out."""
    return re.sub(r"\b\d+\b", "N", re.split(r"[;.] |\n", re.sub(r"^.*?:\d+: ", "", message))[0])
