"""One's own runs on a cluster: how much longer all takes there than predicted, and how sure that is."""

from collections.abc import Iterator, Mapping, Sequence
from math import exp, expm1, hypot, inf, log, sqrt
from pathlib import Path
from statistics import NormalDist, fmean

import numpy
from attrs import evolve, frozen

from nest.catalogue import TimeSpread, estimate_error
from nest.errors import InputError
from nest.hooks.registry import Registry
from nest.instance import EstimateError
from nest.io import structure
from nest.public.planning import device_of, load_model, read_plan, usual_spread
from nest.spec import ClusterCalibration, PlanDocument, Problem
from nest.spec.measurements import RunMeasurement
from nest.units import listed as words
from nest.units import percent
from nest_calibrate.devices import NOISE
from nest_calibrate.entries import listed
from nest_calibrate.fit_doubts import doubt_better
from nest_calibrate.generations import Progress
from nest_calibrate.likeness import RUN_DEGREES, Shape, factors, shape
from nest_calibrate.lines import Doubt, Line, doubt_contradictions, no_doubt, timed
from nest_calibrate.memory import Verdict, evaluated, fit, memory_figures, read_runs, verdict
from nest_calibrate.plausible import Figure, refuse_impossible

LEVEL_DEGREES = 8
"""Degrees of freedom of levels: the four sources as which all generations count, and at least four of their own."""

NARROWER = NormalDist().inv_cdf(0.9) / (0.8 / sqrt(2 * 0.9 * 0.1))
"""Scale of Student's t over the standard deviation of a normal variable, if 80 % of both are in the same range.

The quantile of two degrees of freedom is `(2 p - 1) / sqrt(2 p (1 - p))`.
"""

REACH, POINTS = 6.0, 1001
"""Grid of levels: spreads beyond the outermost run, and number of points."""


@frozen
class ComparedRun:
    """One run, the usual spread on its device, and predictions without a calibration of its cluster.

    Attributes:
        device: its name.
        measured: seconds of its batch; None: not measured.
        predicted: the same, predicted.
        shape: what its factor has in common with those of like plans.
        kinds: of time, whose shares `shape` has.
        verdict: its memory.
    """

    name: str
    device: str
    usual: TimeSpread
    measured: float | None
    predicted: float
    shape: Shape
    kinds: tuple[str, ...]
    verdict: Verdict


def seen_runs(
    files: Sequence[Path], known: Registry, progress: Progress | None = None, doubt: Doubt = no_doubt
) -> list[ComparedRun]:
    """The runs in files of JSON lines, each beside its prediction; `doubt` gets what is doubtful.

    Raises:
        InputError: a file cannot be read, holds no runs of models, a run cannot be priced, or takes a time or memory
            that cannot be.
    """
    runs = read_runs(files, doubt)
    for line in runs:
        if line.measurement.problem.model is None:
            raise InputError(f"{line.place}: a profile needs no calibration; give runs of models.")
    doubt_contradictions(timed(runs), NOISE, doubt)
    bare = [evolve(line, measurement=_uncalibrated(line.measurement)) for line in runs]
    plans = list(evaluated(bare, known, progress))
    refuse_impossible(
        figure for line, each in zip(runs, plans, strict=True) for figure in _figures(line, *each[1:], known)
    )
    result = []
    for number, (run, problem, plan) in enumerate(plans, 1):
        assert plan.batch_time is not None
        seen = ComparedRun(
            name=run.id or f"run {number}",
            device=_device_name(problem),
            usual=usual_spread(device_of(problem.cluster)),
            measured=run.measured.batch_time,
            predicted=plan.batch_time,
            shape=shape_of(plan),
            kinds=tuple(sorted(plan.summary["time_shares"])),
            verdict=verdict(run, plan, problem.training.stack),
        )
        result.append(seen)
    return result


def _device_name(problem: Problem) -> str:
    device = device_of(problem.cluster)
    return "an unknown device" if device is None else device.name


def _figures(line: Line[RunMeasurement], problem: Problem, plan: PlanDocument, known: Registry) -> Iterator[Figure]:
    """Figures of a run beside its `plan`, and the time of its FLOP at the matrix peak."""
    measured, predicted = line.measurement.measured, plan.batch_time
    assert predicted is not None
    yield from memory_figures(line, plan)
    if measured.batch_time is not None:
        least = predicted * plan.summary.get("model_flops_utilisation", 0.0) * _executed_share(problem, known)
        floor = "at the matrix peak of its devices"
        yield Figure(line.place, "measured.batch_time", measured.batch_time, predicted, 0.0, least, floor, noise=NOISE)


def _executed_share(problem: Problem, known: Registry) -> float:
    """Forward FLOP of a problem's model that kernels execute, over those that count towards utilisation."""
    assert problem.model is not None
    graph = load_model(problem.model, problem.training, known)
    return graph.flops / graph.model_flops if graph.model_flops else 1.0


def _uncalibrated(run: RunMeasurement) -> RunMeasurement:
    problem = run.problem
    return evolve(run, problem=evolve(problem, cluster=evolve(problem.cluster, calibration=None)))


def level(logarithms: Sequence[float], usual: TimeSpread) -> tuple[float, float]:
    """The level of a cluster, expected from some of its runs, and the spread of others around it.

    Runs of one cluster scatter with heavy tails: a small model or a slow start is far off. So both the level around
    `log(usual.median)` and the runs around the level follow Student's t, with `LEVEL_DEGREES` and `RUN_DEGREES` degrees
    of freedom (Lange, Little and Taylor, Journal of the American Statistical Association 84, 1989). A run far from the
    others then moves the level less. The level is the mean of its posterior, summed over a grid.

    Args:
        logarithms: of measured over predicted times.
        usual: of clusters, and of runs of one cluster.

    Returns:
        The logarithm of the level, and the standard deviation of the logarithm of another run's time.
    """
    center = log(usual.median)
    if not len(logarithms):
        return center, hypot(usual.between, usual.within)
    reach = REACH * usual.between
    grid = numpy.linspace(min(center, *logarithms) - reach, max(center, *logarithms) + reach, POINTS)
    density = -(LEVEL_DEGREES + 1) / 2 * numpy.log1p(((grid - center) / usual.between) ** 2 / LEVEL_DEGREES)
    for each in logarithms:
        density -= (RUN_DEGREES + 1) / 2 * numpy.log1p(((each - grid) / (NARROWER * usual.within)) ** 2 / RUN_DEGREES)
    weights = numpy.exp(density - density.max())
    weights /= weights.sum()
    mean = float(weights @ grid)
    return mean, sqrt(float(weights @ (grid - mean) ** 2) + usual.within**2)


def shape_of(plan: PlanDocument) -> Shape:
    """Describe the plan of a document; a calibration of its cluster changes nothing of it."""
    assert plan.candidate is not None
    tokens = structure(plan.problem, Problem).training.sequence_length
    return shape(plan.summary["time_shares"], plan.candidate.degrees, tokens)


def planned(file: Path, seen: Sequence[ComparedRun]) -> Shape:
    """Describe the plan of a file, for the cluster of the runs `seen`.

    Raises:
        InputError: there is no plan in it, or one of a profile, whose times are measured; it is for another device than
            all runs; or it was written without the parts of its step time that the runs have.
    """
    plan = read_plan(file)
    if plan.candidate is None:
        raise InputError(f"{file} has no plan: {plan.diagnosis}")
    if plan.problem.get("model") is None:
        raise InputError(f"{file}: a profile needs no calibration; give a plan of a model.")
    if not _is_whole(plan.summary.get("time_shares"), seen[0].kinds):
        raise InputError(f"{file} has no summary.time_shares with seconds of {words(seen[0].kinds)}; solve again.")
    device, others = _device_name(structure(plan.problem, Problem)), sorted({each.device for each in seen})
    if device not in others:
        raise InputError(f"{file} is a plan for {device}, the runs are on {words(others)}. Give runs of its cluster.")
    return shape_of(plan)


def _is_whole(shares: object, kinds: Sequence[str]) -> bool:
    """Whether `shares` are seconds of these kinds that add up to a time."""
    if not isinstance(shares, Mapping) or set(shares) != set(kinds):
        return False
    return all(isinstance(each, (int, float)) for each in shares.values()) and 0 < sum(shares.values()) < inf


def calibrated(seen: Sequence[ComparedRun], sources: tuple[str, ...], plan: Shape | None = None) -> ClusterCalibration:
    """Calibrate one cluster to its runs, read from `sources`: for any plan, or for one.

    The usual spread is the first run's.

    Raises:
        InputError: the runs cannot be those of their problems.
    """
    logarithms = [log(each.measured / each.predicted) for each in seen if each.measured is not None]
    center, spread = level(logarithms, seen[0].usual)
    if plan is not None and logarithms:
        shapes = [each.shape for each in seen if each.measured is not None]
        (center,), (spread,) = (each.tolist() for each in factors(logarithms, shapes, [plan], seen[0].usual))
    if not 0.1 <= exp(center) <= 10:
        raise InputError(
            f"the runs take {exp(center):.3g}x the predicted time, more than any cluster. Check the unit of "
            "batch_time, and one problem with `nest evaluate`."
        )
    memory = memory_of(seen)
    return ClusterCalibration(
        time=round(exp(center), 4),
        time_spread=round(spread, 4),
        memory=None if memory is None else round(memory.median, 4),
        memory_spread=None if memory is None else round(memory.spread, 4),
        runs=len(seen),
        sources=sources,
    )


def level_lines(seen: Sequence[ComparedRun], taken: ClusterCalibration, plan: Path | None = None) -> list[str]:
    """The level by own runs, by published ones, and by both, as ratios to predicted times; of a `plan`, if given."""
    logarithms = [log(each.measured / each.predicted) for each in seen if each.measured is not None]
    usual = seen[0].usual
    low, high = (usual.median * exp(side * usual.between) for side in (-1, 1))
    known = "has" if usual.median == 1 else "has not"
    lines = [f"Your runs take {exp(fmean(logarithms)):.3f} times the predicted time."] if logarithms else []
    return [
        *lines,
        f"On devices whose coefficients nest {known} fitted, published runs take {usual.median:.3f} times the "
        f"predicted time (two thirds of clusters: {low:.3f} to {high:.3f}).",
        f"The factor of {plan or 'this cluster'} is {taken.time:.3f}. Further runs vary by "
        f"{percent(taken.time_spread)} (standard deviation).",
    ]


def memory_of(seen: Sequence[ComparedRun]) -> EstimateError | None:
    """Fit needed over estimated memory to the runs; None if they have no peaks and none failed."""
    if all(each.verdict.peak is None and each.verdict.ran for each in seen):
        return None
    return fit([each.verdict for each in seen], estimate_error(seen[0].verdict.stack))


def doubt_level(seen: Sequence[ComparedRun], doubt: Doubt, by_plan: bool = False) -> None:
    """Tell where the level of a cluster, or factors by plan, make predictions no better: each run by the others."""
    runs = [each for each in seen if each.measured is not None]
    off = [log((each.measured or 0.0) / each.predicted) for each in runs]
    if not off:
        doubt("No run has a batch_time; the correction of time stays 1.")
    elif len(off) > 1:
        usual, others = seen[0].usual, []
        for index, each in enumerate(runs):
            rest = [*off[:index], *off[index + 1 :]]
            shapes = [other.shape for other in runs if other is not each]
            others.append(factors(rest, shapes, [each.shape], usual)[0].item() if by_plan else level(rest, usual)[0])
        after = fmean(abs(expm1(center - each)) for center, each in zip(others, off, strict=True))
        before = fmean(abs(expm1(-each)) for each in off)
        doubt_better("leaving out one run at a time, the mean error", before, after, doubt)


def calibration_text(calibration: ClusterCalibration) -> str:
    """The file that `cluster.calibration` names, in TOML."""
    keys = ("time", "time_spread", "memory", "memory_spread", "runs")
    rows = ["# What runs on a cluster tell of predictions for it: written by `nest calibrate cluster`", ""]
    rows += [f"{key} = {value:.10g}" for key in keys if (value := getattr(calibration, key)) is not None]
    return "\n".join([*rows, *listed("sources", calibration.sources)]) + "\n"
