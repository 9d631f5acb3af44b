"""From files of measurements to calibrated generations of devices, with the errors of each."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median

import numpy
from attrs import evolve, frozen

from nest.catalogue import Calibration, calibrations, devices, precision, published_devices
from nest.errors import InputError
from nest.hooks.protocols import CostModel
from nest.hooks.registry import Registry
from nest.instance import Array
from nest.public.planning import CostBreakdown, breakdown, chosen, described, self_contained
from nest.spec import DeviceSpec
from nest.spec.measurements import OperatorMeasurement, RunMeasurement
from nest_calibrate.devices import (
    NOISE,
    WIDE,
    Calibrated,
    Evidence,
    calibration,
    cross_validated,
    fit,
    plain,
    predicted,
    predicted_with,
    unknowns,
)
from nest_calibrate.fit_doubts import doubt_generations
from nest_calibrate.lines import (
    Doubt,
    Line,
    doubt_contradictions,
    no_doubt,
    operator_lines,
    read_lines,
    run_lines,
    timed,
)
from nest_calibrate.operator_times import PRODUCT, OperatorTimes, operator_figures
from nest_calibrate.plausible import Figure, refuse_impossible
from nest_calibrate.runs import Runs, at_peak
from nest_calibrate.stated import with_stated

Progress = Callable[[str, float], None]
"""Called with what is being done, and the share that is done."""

CATALOGUE, PUBLISHED = "catalogue", "published"
"""Start of a fit: the catalogue's values for the generation, or the published ones of its devices."""

ANOTHER = 0.1
"""Memory that differs by more, relatively, is that of another part: drivers and vendors count up to 7 % differently."""

FOLDS = 8
"""Parts that families are divided into for cross-validation."""


@frozen
class ErrorRow:
    """Errors of one group, or of `all`: mean of absolute relative errors, and their median, as in `Calibrated`."""

    group: str
    count: int
    before: tuple[float, float]
    after: tuple[float, float]
    validated: tuple[float, float]


@frozen
class MeasuredRun:
    """One measured run, taken apart, its device without a calibration, and the place of its line."""

    run: RunMeasurement
    breakdown: CostBreakdown
    device: DeviceSpec
    place: str


def calibrate_devices(
    files: Sequence[Path],
    known: Registry,
    device: str | None = None,
    folds: int = FOLDS,
    progress: Progress | None = None,
    prior: str = CATALOGUE,
    without: Collection[str] = (),
    doubt: Doubt = no_doubt,
) -> list[Calibrated]:
    """Every generation of which the files hold runs or operators, calibrated; by name.

    Args:
        files: of JSON lines (docs/reference/measurements.md); collectives in them are passed over. What a run refers
            to by a relative path is looked for beside its file.
        known: offers importers, strategies and models of cost.
        device: that operators were measured on, as the catalogue names it or a file of its figures.
        folds: parts that families are divided into for cross-validation; at least 2.
        progress: called at each step.
        prior: what the fit begins at, and stays at where nothing is measured: `catalogue` or `published`.
        without: groups whose runs are left out.
        doubt: called with what is doubtful about measurements and fits.

    Raises:
        InputError: a file cannot be read, a group to leave out is in none, a run cannot be priced, operators come
            without their device, something takes a time that cannot be, or there is nothing to fit to.
    """
    lines = read_lines(files, doubt)
    runs = [line for line in run_lines(lines) if line.measurement.measured.batch_time is not None]
    _check_groups(without, {line.measurement.group for line in runs})
    runs = [line for line in runs if line.measurement.group not in without]
    timed_operators = operator_lines(lines)
    operators = [line.measurement for line in timed_operators]
    if operators and device is None:
        raise InputError("--device is missing; name the device of the operators (`nest devices`).")
    if not runs and not operators:
        raise InputError(f"{files[0]}: no runs and no operators.")
    doubt_contradictions(timed([*runs, *timed_operators]), NOISE, doubt)
    sources = list(taken_apart(runs, known, progress))
    costs = chosen(known.cost_models(), None, "costs", "cost model")
    home = None if device is None else _uncalibrated(described(device, None, "--device"))
    _check_names([*(source.device for source in sources), *([] if home is None else [home])])
    _check_operators(operators, costs, home)
    generations: dict[str, list[MeasuredRun]] = {}
    for source in sources:
        generations.setdefault(generation(source.device), []).append(source)
    if home is not None and operators:
        generations.setdefault(generation(home), [])
    starts = {name: calibrations().get(name) if prior == CATALOGUE else None for name in sorted(generations)}
    own = {name: timed_operators if home is not None and generation(home) == name else [] for name in starts}
    seen = [
        evidence(generations[name], costs, [line.measurement for line in own[name]], home, start)
        for name, start in starts.items()
    ]
    refuse_impossible(
        figure
        for name, measured in zip(starts, seen, strict=True)
        for figure in _figures(
            _before(measured, starts[name]), generations[name], own[name], costs, _known(home, starts[name])
        )
    )
    if progress is not None:
        progress(f"fitting {', '.join(starts)}", 0.0)
    values = fit(seen, [numpy.ones(len(each.families), dtype=bool) for each in seen])
    if progress is not None:
        progress("fitting to other families", 1.0 / (1 + folds))
    validated = cross_validated(seen, folds)
    fitted_to = _names(files, without)
    found = [
        _calibrated(name, _groups(generations[name], own[name]), fitted_to, starts[name], measured, fitted, others)
        for name, measured, fitted, others in zip(starts, seen, values, validated, strict=True)
    ]
    doubt_generations(found, seen, values, doubt)
    return found


def taken_apart(
    runs: Sequence[Line[RunMeasurement]], known: Registry, progress: Progress | None = None
) -> Iterator[MeasuredRun]:
    """The runs with what their plans are made of, one after the other.

    Raises:
        InputError: a run cannot be priced.
    """
    for index, line in enumerate(runs):
        if progress is not None:
            progress("reading runs", index / len(runs))
        run = line.measurement
        try:
            stated = with_stated(run.problem, run.stated)
            parts = breakdown(self_contained(stated, line.path.parent, known), known)
        except InputError as error:
            raise InputError(f"{line.place}: {error}") from None
        yield _on_its_part(MeasuredRun(run, parts, _uncalibrated(parts.pricing.device), line.place))


def _on_its_part(run: MeasuredRun) -> MeasuredRun:
    """The run, its device by a name of its own where the cluster says that it is another part than the catalogue's.

    One of more or less memory, or beside another host, is another product, whose clocks differ.
    """
    cluster, device = run.run.problem.cluster, run.device
    if not isinstance(cluster.device, str):
        return run
    parts = (
        []
        if cluster.memory is None
        else [f"{cluster.memory / 1e9:.0f} GB"] * (abs(cluster.memory / device.memory - 1) > ANOTHER)
    )
    host = run.breakdown.problem.training.host or device.host
    parts += [host] if host != device.host else []
    if not parts:
        return run
    name = " ".join([device.name, *parts])
    pricing = evolve(run.breakdown.pricing, device=evolve(run.breakdown.pricing.device, name=name))
    return evolve(run, device=evolve(device, name=name), breakdown=evolve(run.breakdown, pricing=pricing))


def generation(device: DeviceSpec) -> str:
    """The name of the generation whose coefficients `device` shares."""
    return device.generation or device.name


def _uncalibrated(device: DeviceSpec) -> DeviceSpec:
    """The device without a calibration: one of the catalogue by its published figures."""
    known = devices().get(device.name)
    if known is not None and evolve(known, engines=device.engines) == device:
        return published_devices()[device.name]
    return plain(device)


def _check_names(specs: Iterable[DeviceSpec]) -> None:
    """Raise `InputError` where one name stands for devices of different figures."""
    first: dict[str, DeviceSpec] = {}
    for device in specs:
        if first.setdefault(device.name, device) != device:
            raise InputError(
                f"cluster.device: the name {device.name!r} stands for devices of different figures; give one of them "
                "another `name`."
            )


def _check_groups(without: Collection[str], groups: Collection[str]) -> None:
    """Raise `InputError` where a group is to be left out that there is none of."""
    for name in without:
        if name not in groups:
            known = ", ".join(sorted(each for each in groups if each)) or "none"
            raise InputError(f"--without {name}: no run is of this group; groups here: {known}.")


def _check_operators(operators: Sequence[OperatorMeasurement], costs: CostModel, home: DeviceSpec | None) -> None:
    """Raise `InputError` where operators come from several devices, or cannot be priced."""
    names = sorted({each.device for each in operators if each.device is not None})
    if len(names) > 1:
        raise InputError(f"device: the operators come from {' and '.join(names[:3])}; fit one device at a time.")
    if home is not None and operators:
        OperatorTimes(operators, home.name, costs).predict({home.name: home})


def evidence(
    sources: Sequence[MeasuredRun],
    costs: CostModel,
    operators: Sequence[OperatorMeasurement] = (),
    home: DeviceSpec | None = None,
    begun: Calibration | None = None,
) -> Evidence:
    """Measurements of a generation: runs first, then operators on the device `home`, each as given."""
    specs = [source.device for source in sources]
    specs += [home] if home is not None and operators else []
    devices = {device.name: device for device in sorted(specs, key=lambda device: device.name)}
    table = Runs([source.breakdown for source in sources], costs) if sources else None
    times = OperatorTimes(operators, home.name, costs) if home is not None and operators else None

    def predict(on: Mapping[str, DeviceSpec]) -> Array:
        parts = [each.predict(on) for each in (table, times) if each is not None]
        return numpy.concatenate(parts)

    runs = [source.run for source in sources]
    return Evidence(
        devices=devices,
        unknowns=unknowns(list(devices.values()), _formats(sources, operators, home), begun),
        predict=predict,
        seconds=numpy.array([*(run.measured.batch_time for run in runs), *(each.seconds for each in operators)]),
        families=(
            *(_family(source) for source in sources),
            *(f"{each.device}|{each.kind}|{each.precision}" for each in operators),
        ),
    )


def _calibrated(
    name: str,
    groups: tuple[str, ...],
    files: str,
    begun: Calibration | None,
    seen: Evidence,
    values: Mapping[str, float],
    validated: Array,
) -> Calibrated:
    """The generation `name` with the `values` fitted to what was measured on it, `groups` those of measurements."""
    calibrated = Calibrated(
        calibration=calibration(name, values),
        devices=tuple(seen.devices.values()),
        groups=groups,
        families=seen.families,
        measured=seen.seconds,
        before=_before(seen, begun),
        after=predicted(seen, values),
        validated=validated,
    )
    return evolve(calibrated, calibration=evolve(calibrated.calibration, sources=(_source(calibrated, files, begun),)))


def _before(seen: Evidence, begun: Calibration | None) -> Array:
    """Seconds predicted with what the fit begins at. Shape `(measurements,)`."""
    return seen.predict(seen.devices) if begun is None else predicted_with(seen, begun)


def _known(home: DeviceSpec | None, begun: Calibration | None) -> DeviceSpec | None:
    """The device `home` with what the fit begins at."""
    return home if home is None or begun is None else begun.on(home)


def _groups(sources: Sequence[MeasuredRun], operators: Sequence[Line[OperatorMeasurement]]) -> tuple[str, ...]:
    """The groups of runs and operators, as tables name them."""
    return (*(source.run.group or "runs" for source in sources), *(each.measurement.kind for each in operators))


def _figures(
    before: Array,
    sources: Sequence[MeasuredRun],
    operators: Sequence[Line[OperatorMeasurement]],
    costs: CostModel,
    home: DeviceSpec | None,
) -> Iterator[Figure]:
    """The times of runs beside those predicted `before`, those of operators on `home`, and those at devices' peaks."""
    for source, usual in zip(sources, before.tolist(), strict=False):  # Operators stand behind the runs.
        seconds, floor = source.run.measured.batch_time, f"at the matrix peak of {source.device.name}"
        assert seconds is not None
        least = at_peak(source.breakdown)
        yield Figure(source.place, "measured.batch_time", seconds, usual, 0.0, least, floor, noise=NOISE)
    if home is not None and operators:
        yield from operator_figures(operators, home, costs)


def _family(source: MeasuredRun) -> str:
    """The family of a run: as it says, else its group, else the model, device and precision it shares with others."""
    problem = source.run.problem
    shared = f"{problem.model!r}|{source.device.name}|{problem.training.precision}"
    return source.run.family or source.run.group or shared


def _formats(
    sources: Sequence[MeasuredRun], operators: Sequence[OperatorMeasurement], home: DeviceSpec | None
) -> set[str]:
    """The number formats in which products with weights ran; `home` is where operators were measured."""
    used = [(source.run.problem.training.precision, source.device) for source in sources]
    used += [(each.precision, home) for each in operators if home is not None and each.kind == PRODUCT]
    return {_format(name, device) for name, device in used}


def _format(name: str, device: DeviceSpec) -> str:
    """The number format in which a device computes products with weights in the precision `name`."""
    formats = (each for each in precision(name).products if getattr(device.peak, each) is not None)
    return next(formats, WIDE)


def _names(files: Sequence[Path], without: Collection[str]) -> str:
    """The files fitted to, and what of them is left out, as on the command line."""
    return " ".join([*(path.name for path in files), *(f"--without {name}" for name in without)])


def _source(calibrated: Calibrated, files: str, begun: Calibration | None) -> str:
    """Source line of a calibration to `files`."""
    row = error_rows([calibrated])[-1]
    start, before = ("published figures", "without it") if begun is None else ("the catalogue", "by the catalogue")
    return (
        f"nest calibrate devices {files}, begun at {start}: robust least squares over {row.count} measurements of "
        f"{len(set(calibrated.families))} families; mean and median of absolute relative errors "
        f"{_percent(row.after)}, cross-validated by family {_percent(row.validated)}, {before} {_percent(row.before)}"
    )


def _percent(errors: tuple[float, float]) -> str:
    return f"{100 * errors[0]:.1f} % and {100 * errors[1]:.1f} %"


def error_rows(calibrated: Sequence[Calibrated]) -> list[ErrorRow]:
    """Errors by group, in the order of their names, and of all."""
    groups = [group for each in calibrated for group in each.groups]
    off = {
        name: numpy.concatenate([numpy.abs(getattr(each, name) / each.measured - 1) for each in calibrated])
        for name in ("before", "after", "validated")
    }

    def row(name: str, chosen: Sequence[int]) -> ErrorRow:
        figures = {
            key: (fmean(values[chosen].tolist()), median(values[chosen].tolist())) for key, values in off.items()
        }
        return ErrorRow(name, len(chosen), **figures)

    rows = [row(name, [i for i, group in enumerate(groups) if group == name]) for name in sorted(set(groups))]
    return [*rows, row("all", range(len(groups)))]
