"""Ratio of needed memory to the estimate, fitted to runs that fitted and that did not; its doubts."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import exp, log
from pathlib import Path
from statistics import NormalDist

from attrs import frozen

import nest
from nest.catalogue import estimate_error
from nest.errors import InputError
from nest.hooks.registry import Registry
from nest.instance import EstimateError
from nest.public.planning import self_contained
from nest.public.text import memory_capacity
from nest.spec import PlanDocument, Problem, StageRecord
from nest.spec.measurements import RunMeasurement
from nest.units import Bytes
from nest_calibrate.entries import listed
from nest_calibrate.fit_doubts import Fitted, alone, at_bounds, doubt_coefficients
from nest_calibrate.generations import Progress
from nest_calibrate.lines import Doubt, Line, no_doubt, read_lines, run_lines
from nest_calibrate.plausible import MEMORY, Figure, refuse_impossible
from nest_calibrate.robust_fit import UNTOLD

USUAL = EstimateError(median=1.0, spread=0.2)
"""Prior of the estimate: unbiased, with a spread of a fifth."""

MEDIAN_SPREAD, SPREAD_SPREAD = 0.2, 0.5
"""Prior spread of a fit, which counts as one source: standard deviations of logarithms of median and spread."""

LEAST_LIKELIHOOD = 1e-12
"""The least likelihood of one run, so that none decides alone."""

BOUNDS = (0.0, log(2.0)), (log(0.02), 0.0)
"""Of the logarithms of median and spread. No plan is promised memory beyond what a device has because others needed
less than estimated: at even odds the estimate itself must fit."""

UNSEEN = {"reserved": ("framework",), "allocated": ("framework", "fragmentation")}
"""Parts of what a stage needs that peaks of PyTorch's allocator leave out. It knows nothing of driver and libraries;
tensors alone are without what lies between them, too (PyTorch, CUDA semantics: memory management)."""

GIB_FOR_GB = 2**30 / 1e9
"""A device of 80 GB by its name may have 80 GiB."""

_KIND = re.compile(r"(?:^|max_memory_)(reserved|allocated)\b")


@frozen
class Verdict:
    """One run: what is estimated, and what was seen.

    Attributes:
        group: its source.
        estimate: bytes of the fullest stage, the reserve apart.
        room: bytes of a device, the reserve apart.
        ran: whether it had memory enough.
        peak: bytes measured, with what was not seen of them as estimated; None: not measured.
        stack: name of its software, stated or implied; None: it has no name.
    """

    group: str
    estimate: float
    room: float
    ran: bool
    peak: float | None
    stack: str | None = None

    def likelihood(self, error: EstimateError) -> float:
        """Likelihood of the observation: the density at a peak's logarithm, else the probability of (not) fitting."""
        if self.peak is not None:
            distance = log(self.peak / self.estimate / error.median) / error.spread
            return max(NormalDist().pdf(distance) / error.spread, LEAST_LIKELIHOOD)
        fits = error.within(self.room / self.estimate)
        return max(fits if self.ran else 1 - fits, LEAST_LIKELIHOOD)


def verdicts(
    files: Sequence[Path], known: Registry, progress: Progress | None = None, doubt: Doubt = no_doubt
) -> list[Verdict]:
    """Estimates for the runs in files of JSON lines, and their outcomes.

    Raises:
        InputError: as of `evaluated`; a run takes no memory that it could have.
    """
    runs = read_runs(files, doubt)
    plans = list(evaluated(runs, known, progress))
    refuse_impossible(
        figure for line, (_, _, plan) in zip(runs, plans, strict=True) for figure in memory_figures(line, plan)
    )
    return [verdict(run, plan, whole.training.stack) for run, whole, plan in plans]


def read_runs(files: Sequence[Path], doubt: Doubt = no_doubt) -> list[Line[RunMeasurement]]:
    """The runs in files of JSON lines.

    Raises:
        InputError: a file cannot be read, or there are no runs in them.
    """
    runs = run_lines(read_lines(files, doubt))
    if not runs:
        raise InputError(f"{files[0]}: no runs.")
    return runs


def memory_figures(line: Line[RunMeasurement], plan: PlanDocument) -> Iterator[Figure]:
    """Memory figures of a run, beside its `plan`'s needs and the device's size."""
    peak = line.measurement.measured.peak_memory
    if peak is not None:
        fullest = _fullest(plan)
        yield Figure(
            line.place,
            "measured.peak_memory",
            peak,
            fullest.memory,
            most=_capacity(plan, fullest) * GIB_FOR_GB,
            ceiling="on the device",
            quantity=MEMORY,
        )


def evaluated(
    runs: Sequence[Line[RunMeasurement]], known: Registry, progress: Progress | None = None
) -> Iterator[tuple[RunMeasurement, Problem, PlanDocument]]:
    """Each run with its problem, files read into it, and its plan as `nest evaluate` prices it.

    Raises:
        InputError: a run cannot be priced; the text names its place.
    """
    for index, line in enumerate(runs):
        if progress is not None:
            progress("reading runs", index / len(runs))
        try:
            whole = self_contained(line.measurement.problem, line.path.parent, known)
            plan = nest.evaluate(whole, plugins=known)
        except InputError as error:
            raise InputError(f"{line.place}: {error}") from None
        yield line.measurement, whole, plan


def verdict(run: RunMeasurement, plan: PlanDocument, stack: object = None) -> Verdict:
    """Estimate for a run by its `plan` on a `stack`, and its outcome."""
    fullest = _fullest(plan)
    reserve = 0.0 if fullest.memory_breakdown is None else fullest.memory_breakdown.reserve
    room = _capacity(plan, fullest) - reserve
    peak = run.measured.peak_memory
    if peak is not None and fullest.memory_breakdown is not None:
        kind = _KIND.search(run.measured.memory_kind or "")
        unseen = UNSEEN[kind.group(1)] if kind else ()
        peak = Bytes(peak + sum(getattr(fullest.memory_breakdown, name) for name in unseen))
    name = stack if isinstance(stack, str) else None
    return Verdict(run.group, fullest.memory - reserve, room, run.measured.fits is not False, peak, name)


def _capacity(plan: PlanDocument, stage: StageRecord) -> float:
    """Bytes of a device that runs a stage."""
    capacity = memory_capacity(plan.summary, stage.pool)
    assert capacity is not None
    return capacity


def _fullest(plan: PlanDocument) -> StageRecord:
    """The stage that needs most of what its devices have."""
    return max(plan.stages, key=lambda stage: stage.memory / _capacity(plan, stage))


def fit(seen: Iterable[Verdict], begun: EstimateError | None = None, weight: float = 0.0) -> EstimateError:
    """The error that makes what was seen most likely, a source of `n` runs counting as `n**weight`.

    What ran, and what did not, say on which side of a device's memory the need lay. A fit begins at `begun`, the
    catalogue's where it is left out, and stays near it where little was seen.
    """
    seen, begun = list(seen), begun or estimate_error()
    start = log(begun.median), log(begun.spread)

    def cost(at: tuple[float, float]) -> float:
        away = ((at[0] - start[0]) / MEDIAN_SPREAD) ** 2 / 2 + ((at[1] - start[1]) / SPREAD_SPREAD) ** 2 / 2
        return away + surprise(seen, EstimateError(exp(at[0]), exp(at[1])), weight)

    best = _least(cost, start)
    return EstimateError(exp(best[0]), exp(best[1]))


def of_stacks(seen: Sequence[Verdict], begun: EstimateError) -> dict[str, EstimateError]:
    """Errors of the stacks of which a source has runs that ran and runs that failed, fitted to `both_verdicts`.

    Runs that were published without failures are survivors: they tell little of how likely a plan is to fit. A source
    of `n` runs counts as the root of `n`, as in spreads of step times.
    """
    found = both_verdicts(seen)
    stacks = sorted({each.stack for each in found if each.stack is not None})
    return {name: fit([each for each in found if each.stack == name], begun, 0.5) for name in stacks}


def both_verdicts(seen: Sequence[Verdict]) -> list[Verdict]:
    """The runs of sources that ran on a stack, and failed on it, too."""
    ran = {(each.group, each.stack) for each in seen if each.ran}
    failed = {(each.group, each.stack) for each in seen if not each.ran}
    return [each for each in seen if (each.group, each.stack) in ran & failed]


def surprise(seen: Sequence[Verdict], error: EstimateError, weight: float = 0.0) -> float:
    """The negative logarithm of the likelihood of what was seen; a source of `n` runs counts as `n**weight`."""
    counts = Counter(each.group for each in seen)
    weights = {group: exp((weight - 1) * log(count)) for group, count in counts.items()}
    return -sum(log(each.likelihood(error)) * weights[each.group] for each in seen)


def _least(cost: Callable[[tuple[float, float]], float], start: tuple[float, float]) -> tuple[float, float]:
    """Find the least `cost` within `BOUNDS` by steps along either axis, halved when neither helps."""
    at, best, step = start, cost(start), 0.1
    while step > 1e-4:
        tried = [(at[0] + a * step, at[1] + b * step) for a, b in ((1, 0), (-1, 0), (0, 1), (0, -1))]
        inside = [each for each in tried if all(low <= x <= high for x, (low, high) in zip(each, BOUNDS, strict=True))]
        costs = [cost(each) for each in inside]
        if min(costs) < best:
            best = min(costs)
            at = inside[costs.index(best)]
        else:
            step /= 2
    return at


@frozen
class Share:
    """Share of right verdicts on the runs of one source, or of `all`.

    Attributes:
        ran: runs that ran.
        refused: those of them that are said not to fit.
        failed: runs that ran out of memory.
        promised: those of them that are said to fit.
        peak_error: mean of `|estimate / peak - 1|`; None: no peak was measured.
    """

    group: str
    ran: int
    refused: int
    failed: int
    promised: int
    peak_error: float | None


def shares(seen: Sequence[Verdict], risk: float, errors: Callable[[str], EstimateError]) -> list[Share]:
    """By source and for all, how right verdicts at `risk` are, with the error that `errors` gives for a source."""
    groups: dict[str, list[Verdict]] = defaultdict(list)
    for each in seen:
        groups[each.group].append(each)
    fits = {group: errors(group).factor(risk) for group in groups}

    def share(name: str, members: Sequence[Verdict]) -> Share:
        verdicts_and_fits = [(each, each.estimate * fits[each.group] <= each.room) for each in members]
        away = [abs(each.estimate / each.peak - 1) for each in members if each.peak is not None]
        return Share(
            name,
            sum(each.ran for each in members),
            sum(each.ran and not fit for each, fit in verdicts_and_fits),
            sum(not each.ran for each in members),
            sum(not each.ran and fit for each, fit in verdicts_and_fits),
            sum(away) / len(away) if away else None,
        )

    return [*(share(name, groups[name]) for name in sorted(groups)), share("all", seen)]


def left_out(seen: Sequence[Verdict], begun: EstimateError | None = None) -> dict[str, EstimateError]:
    """For each source the error as fitted to the others."""
    groups = sorted({each.group for each in seen})
    return {group: fit([each for each in seen if each.group != group], begun) for group in groups}


def error_text(error: EstimateError, sources: Sequence[str], stacks: Mapping[str, EstimateError] = {}) -> str:
    """The file of the catalogue (`nest/library/memory_error.toml`) that holds `error` and those of `stacks`, in TOML.

    All are given to a hundredth: some hundred runs tell no more.
    """
    rows = ["# What plans need of memory over what is estimated: written by `nest calibrate memory`", ""]
    rows += [f"median = {error.median:.2f}", f"spread = {error.spread:.2f}", *listed("sources", sources)]
    for name, each in stacks.items():
        rows += ["", f"[stacks.{name}]", f"median = {each.median:.2f}", f"spread = {each.spread:.2f}"]
    return "\n".join(rows) + "\n"


BESIDE = 0.05
"""Step of the differences that stand for second derivatives, of logarithms."""


def doubt_memory(
    seen: Sequence[Verdict],
    found: EstimateError,
    others: Mapping[str, EstimateError],
    begun: EstimateError | None,
    doubt: Doubt,
) -> None:
    """Tell what is doubtful about the error `found` from what was `seen`.

    `others` are those found without each source, `begun` is what the fit began at, the catalogue's if left out.
    """
    begun = begun or estimate_error()
    if len(others) == 1:
        doubt(alone("source", list(others)))
    else:
        held = sum(surprise([each for each in seen if each.group == name], error) for name, error in others.items())
        if held >= surprise(seen, begun):
            doubt(
                "No improvement: cross-validated likelihood is no better than that of the starting values. Keep "
                "the starting values."
            )
    doubt_memory_figures(seen, found, doubt, begun)


def doubt_memory_figures(
    seen: Sequence[Verdict], found: EstimateError, doubt: Doubt, begun: EstimateError | None = None
) -> None:
    """Tell of the median and the spread `found` which of them are at bounds, and of which nothing tells.

    `begun` is what the fit began at, the catalogue's if left out.
    """
    begun = begun or estimate_error()
    at = log(found.median), log(found.spread)
    names, beliefs = ("median", "spread"), (MEDIAN_SPREAD, SPREAD_SPREAD)
    untold = []
    for axis, (name, belief) in enumerate(zip(names, beliefs, strict=True)):
        below, here, above = (surprise(seen, _moved(at, axis, step)) for step in (-BESIDE, 0.0, BESIDE))
        curvature = max((below - 2 * here + above) / BESIDE**2, 0.0)
        if 1 / (1 + curvature * belief**2) > UNTOLD:
            untold.append(name)
    figures = zip(names, (found.median, found.spread), (begun.median, begun.spread), BOUNDS, strict=True)
    fitted = [Fitted(name, value, believed, exp(low), exp(high)) for name, value, believed, (low, high) in figures]
    bound = at_bounds(each for each in fitted if each.name not in untold)
    doubt_coefficients("needed over estimated memory", bound, untold, doubt)


def _moved(at: tuple[float, float], axis: int, step: float) -> EstimateError:
    median, spread = (exp(each + (step if axis == index else 0.0)) for index, each in enumerate(at))
    return EstimateError(median, spread)
