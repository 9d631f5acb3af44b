"""The baseline: every device does model FLOP at one share of its peak, whatever the plan."""

from collections.abc import Callable, Sequence

import numpy
from numpy.typing import NDArray

from benchmarks.fidelity.statistics import best_share
from nest.formulate.model import model_facts
from nest.hooks.registry import registry
from nest.plan.evaluate import evaluate
from nest_calibrate.devices import parts
from nest_calibrate.generations import MeasuredRun

Array = NDArray[numpy.float64]

ALIKE: tuple[Callable[[MeasuredRun], object], ...] = (
    lambda run: (run.breakdown.pricing.device.name, run.run.problem.training.precision),
    lambda run: run.breakdown.pricing.device.name,
    lambda run: run.run.problem.training.precision,
    lambda run: None,
)
"""Whose share is taken: runs on the same device in the same precision; where no other family has any, on the same
device, in the same precision, or of the generation."""


def ideal_seconds(run: MeasuredRun) -> float:
    """Seconds of the model FLOP of a batch on all devices of the plan at their matrix peak."""
    problem, breakdown = run.run.problem, run.breakdown
    priced = breakdown.problem
    facts = model_facts(priced.model, priced.training, priced.cluster, registry())
    assert facts is not None
    _, flops, peaks, _ = facts
    widths = sum(stage.width for stage in evaluate(breakdown.instance, breakdown.solution).stages)
    return flops * problem.training.global_batch / (breakdown.solution.replicas * widths * peaks[""])


def constant_share(runs: Sequence[MeasuredRun], families: Sequence[str], folds: int) -> Array:
    """Seconds of the runs of one generation at the share that is best for other families; nan where there are none.

    Args:
        runs: of one generation.
        families: of each.
        folds: parts that the families are dealt to.
    """
    ideal = [ideal_seconds(run) for run in runs]
    achieved = [seconds / (run.run.measured.batch_time or numpy.nan) for run, seconds in zip(runs, ideal, strict=True)]
    part = parts(families, folds)
    found = numpy.full(len(runs), numpy.nan)
    for index, run in enumerate(runs):
        for alike in ALIKE:
            others = [
                share
                for share, other, its in zip(achieved, runs, part, strict=True)
                if its != part[index] and alike(other) == alike(run)
            ]
            if others:
                found[index] = ideal[index] / best_share(others)
                break
    return found
