"""One's own runs on a cluster: how much longer all takes there than predicted, and how sure that is."""

from collections.abc import Sequence
from math import exp, hypot, log, sqrt
from pathlib import Path

from attrs import evolve, frozen

from nest.calibrate.entries import listed
from nest.calibrate.generations import Progress, place_of
from nest.calibrate.memory import Verdict, evaluated, fit, read_runs, verdict
from nest.catalogue import TimeSpread, time_spread
from nest.errors import InputError
from nest.formulate.stack import device_of
from nest.hooks.registry import Registry
from nest.spec import ClusterCalibration
from nest.spec.measurements import RunMeasurement


@frozen
class ComparedRun:
    """One run, with the generation of its device, beside what is predicted of it without a calibration of its cluster.

    Attributes:
        measured: seconds of its batch; None: not measured.
        predicted: the same, predicted.
        verdict: its memory.
    """

    name: str
    generation: str
    measured: float | None
    predicted: float
    verdict: Verdict


def seen_runs(files: Sequence[Path], known: Registry, progress: Progress | None = None) -> list[ComparedRun]:
    """The runs in files of JSON lines, each beside what is predicted of it.

    Raises:
        InputError: a file cannot be read, holds no runs of models, or a run cannot be priced.
    """
    runs = read_runs(files)
    for index, (_, run) in enumerate(runs):
        if run.problem.model is None:
            raise InputError(f"{place_of(runs, index)}: the times of a profile are measured; give runs of models.")
    bare = [(path, _uncalibrated(run)) for path, run in runs]
    result = []
    for number, (run, problem, plan) in enumerate(evaluated(bare, known, progress), 1):
        assert plan.batch_time is not None
        device = device_of(problem.cluster)
        name, generation = run.id or f"run {number}", "" if device is None else device.generation
        result.append(ComparedRun(name, generation, run.measured.batch_time, plan.batch_time, verdict(run, plan)))
    return result


def _uncalibrated(run: RunMeasurement) -> RunMeasurement:
    problem = run.problem
    return evolve(run, problem=evolve(problem, cluster=evolve(problem.cluster, calibration=None)))


def level(logarithms: Sequence[float], usual: TimeSpread) -> tuple[float, float]:
    """The level of a cluster, expected from some of its runs, and the spread of others around it.

    The level (its software, clocks, network) is normal in the logarithm, and runs scatter around it, both as far as is
    `usual`: with `n` runs of mean `m`, it is expected at `m` times `between^2 / (between^2 + within^2 / n)`, shrunk
    towards 0, with variance `between^2 within^2 / (n between^2 + within^2)` (Gelman et al., Bayesian Data Analysis,
    section 2.5).

    Args:
        logarithms: of measured over predicted times.
        usual: of clusters, and of runs of one cluster.

    Returns:
        The logarithm of the level, and the standard deviation of the logarithm of another run's time.
    """
    count = len(logarithms)
    if not count:
        return 0.0, hypot(usual.between, usual.within)
    share = usual.between**2 / (usual.between**2 + usual.within**2 / count)
    return share * sum(logarithms) / count, sqrt((1 - share) * usual.between**2 + usual.within**2)


def calibrated(
    seen: Sequence[ComparedRun], sources: tuple[str, ...], usual: TimeSpread | None = None
) -> ClusterCalibration:
    """What runs on one cluster, read from `sources`, tell of it.

    `usual` is how far clusters, and runs of one cluster, lie from predictions; None: as the catalogue has it for the
    generation of the first run's device.

    Raises:
        InputError: the runs cannot be those of their problems.
    """
    logarithms = [log(each.measured / each.predicted) for each in seen if each.measured is not None]
    center, spread = level(logarithms, usual or time_spread(seen[0].generation))
    if not 0.1 <= exp(center) <= 10:
        raise InputError(
            f"the runs take {exp(center):.3g} times as long as predicted; no cluster differs by more than 10 times. "
            "Look at a problem with `nest evaluate`, and at the unit of its batch_time."
        )
    measured = [each.verdict for each in seen if each.verdict.peak is not None or not each.verdict.ran]
    memory = fit([each.verdict for each in seen]) if measured else None
    return ClusterCalibration(
        time=round(exp(center), 4),
        time_spread=round(spread, 4),
        memory=None if memory is None else round(memory.median, 4),
        memory_spread=None if memory is None else round(memory.spread, 4),
        runs=len(seen),
        sources=sources,
    )


def calibration_text(calibration: ClusterCalibration) -> str:
    """The file that `cluster.calibration` names, in TOML."""
    keys = ("time", "time_spread", "memory", "memory_spread", "runs")
    rows = ["# What runs on a cluster tell of predictions for it: written by `nest calibrate cluster`", ""]
    rows += [f"{key} = {value:.10g}" for key in keys if (value := getattr(calibration, key)) is not None]
    return "\n".join([*rows, *listed("sources", calibration.sources)]) + "\n"
