"""From a log, and what ran beside it, to a measured run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

import nest
from nest.deployment import LaunchOptions
from nest.errors import InputError
from nest.hooks.registry import Registry
from nest.io import read_mapping, structure, unstructure
from nest.public.planning import as_fixed, read_flags, read_plan, start, whole_problem, with_decisions
from nest.spec import PlanDocument, Problem
from nest.spec.measurements import RunFigures, RunMeasurement
from nest.units import Bytes, Seconds
from nest_calibrate.logs import LogFigures, read_log

FLAGS_OF = "megatron"
"""The exporter that reads flags, and the arguments in a log."""

SAME_STEM = (".json", ".yaml", ".yml", ".toml", ".sh")
SAME_FOLDER = ("plan.json", "problem.yaml", "problem.yml", "problem.json", "problem.toml")
"""Files searched beside a log for what ran: a plan, a problem or a script of flags."""


@frozen
class RunOptions:
    """Options of the command line for all logs.

    Attributes:
        problem: a problem or a plan, in place of what lies beside logs; to flags it says what they do not.
        cluster: of flags: a name or a file.
        nodes: of flags: machines they were launched on.
        vocabulary: of flags: tokens of the vocabulary.
    """

    problem: Path | None = None
    cluster: str | None = None
    nodes: int | None = None
    vocabulary: int | None = None


@frozen
class Measured:
    """A log, and the run it is of.

    Attributes:
        log: its path.
        figures: what it says.
        run: the measurement; None: nobody says what ran.
        plan: what ran, as `nest evaluate` prices it; None: nobody says what ran.
        notes: what was passed over or assumed, a sentence each.
    """

    log: Path
    figures: LogFigures
    run: RunMeasurement | None
    plan: PlanDocument | None
    notes: tuple[str, ...]

    @property
    def seconds(self) -> float | None:
        """Of a step; None: it ran out of memory, or the log does not say."""
        return self.figures.seconds if self.run is None else self.run.measured.batch_time

    def line(self) -> dict[str, Any]:
        """The measurement as a line; without a problem where nobody says what ran."""
        line: dict[str, Any] = {"nest": 1, "measurement": "run", "id": str(self.log)}
        if self.run is not None:
            line["problem"] = self.run.problem.to_dict()
        measured = run_figures(self.figures, self.figures.seconds) if self.run is None else self.run.measured
        return {**line, "measured": unstructure(measured), "source": _source(self.figures)}


def measure(log: Path, options: RunOptions, known: Registry) -> Measured:
    """Read a log's figures, with the problem that ran.

    Raises:
        InputError: the log, or what says what ran, cannot be read; or they speak of different runs.
    """
    figures = read_log(log)
    problem, notes = _problem(log, options, figures, known)
    if figures.left_out:
        notes = (
            f"it holds {figures.left_out + 1} runs of different step times; the last with several steps counts.",
            *notes,
        )
    if problem is None:
        return Measured(log, figures, None, None, notes)
    if problem.model is None:
        raise InputError(f"{log}: its problem has a profile; give one with a model.")
    try:
        plan = nest.evaluate(problem, plugins=known)
    except InputError as error:
        raise InputError(f"{log}: cannot price the run: {error}") from None
    devices = int(plan.summary["devices_used"])
    _refuse_another(log, figures, problem, devices)
    length = problem.training.sequence_length
    tokens = None if length is None else problem.training.global_batch * length
    measured = run_figures(figures, figures.seconds_with(tokens, devices))
    return Measured(log, figures, RunMeasurement(problem, measured, id=str(log), source=_source(figures)), plan, notes)


def run_figures(figures: LogFigures, seconds: float | None) -> RunFigures:
    """Measured figures; of a run out of memory, only that."""
    if figures.failed:
        return RunFigures(fits=False)
    peak = None if figures.peak is None else Bytes(figures.peak)
    return RunFigures(None if seconds is None else Seconds(seconds), peak, figures.peak_kind)


def _source(figures: LogFigures) -> dict[str, Any]:
    return {"framework": figures.framework, "steps": figures.steps}


def _problem(
    log: Path, options: RunOptions, figures: LogFigures, known: Registry
) -> tuple[Problem | None, tuple[str, ...]]:
    """The complete problem that ran, and what was skipped; None if nobody says."""
    beside = None if options.problem is not None else _beside(log)
    flags: Path | None = log if figures.arguments else log.with_suffix(".sh")
    if beside is not None and beside.suffix != ".sh":
        flags = None
    if flags is None or not flags.is_file() or (options.problem is not None and _is_plan(options.problem)):
        if (options.cluster, options.nodes, options.vocabulary) != (None, None, None):
            raise InputError(f"{log}: --cluster, --nodes and --vocabulary need flags, and the log has none.")
        written = options.problem or beside
        return (None, ()) if written is None else (_written(written, known), ())
    started = start(
        flags,
        FLAGS_OF,
        options.problem,
        cluster=options.cluster,
        vocabulary=options.vocabulary,
        reading=read_flags(flags, FLAGS_OF, LaunchOptions(options.nodes), known, figures.arguments or None),
        plugins=known,
    )
    return started.problem, started.notes


def _beside(log: Path) -> Path | None:
    """The file beside a log that says what ran."""
    of_log = (log.with_suffix(suffix) for suffix in SAME_STEM)
    places = [*of_log, *(log.parent / name for name in SAME_FOLDER)]
    return next((each for each in places if each != log and each.is_file()), None)


def _is_plan(path: Path) -> bool:
    return {"stages", "problem"} <= set(read_mapping(path).mapping)


def _written(path: Path, known: Registry) -> Problem:
    """The problem of a problem file, or of a plan with its decisions fixed."""
    if not _is_plan(path):
        return whole_problem(path, known)[0]
    plan = read_plan(path)
    try:
        problem = with_decisions(structure(plan.problem, Problem), as_fixed(plan))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    # Constraints and a target say what a search may find; it has found it.
    return evolve(problem, constraints=())


def _refuse_another(log: Path, figures: LogFigures, problem: Problem, devices: int) -> None:
    """Refuse a problem that is not of the run in the log."""
    ours = {
        "a global batch of {} samples": (figures.batch, problem.training.global_batch),
        "samples of {} tokens": (figures.sequence, problem.training.sequence_length),
        "{} devices": (figures.devices, devices),
    }
    for what, (logged, said) in ours.items():
        if logged is not None and logged != said:
            raise InputError(
                f"{log}: the log has {what.format(logged)}, but its problem {what.format(said)}; give the problem "
                "or plan of this run."
            )


def measure_all(logs: Sequence[Path], options: RunOptions, known: Registry) -> list[Measured]:
    """Read logs, each with the problem that ran; errors as of `measure`."""
    return [known.run(lambda log=log: measure(log, options, known)) for log in logs]  # type: ignore[misc]
