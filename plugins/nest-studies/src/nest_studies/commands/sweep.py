"""`nest sweep`: every point of a study, a row each."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nest.public.commands import (
    NO_PLAN,
    STRICT_PLUGINS,
    StepLine,
    complete_engines,
    fail,
    note_once,
    show_table,
    warn_of_plugins,
)
from nest.units import format_seconds
from nest_studies import verbs

if TYPE_CHECKING:
    from nest_studies.sweep.run import SweepResult

MOST_SHOWN = 40
"""Rows printed: more of them are for the file."""

MOST_REASONS = 5
"""Reasons printed why points are no problems: the file has all."""


def sweep(
    study: Path = typer.Argument(..., metavar="STUDY", help="Study file: YAML, JSON or TOML."),
    output: Path = typer.Option(..., "--output", "-o", metavar="FILE", help="Result file: .parquet, .csv or .jsonl."),
    engine: str = typer.Option(
        "local",
        "--engine",
        metavar="NAME",
        show_default=False,
        autocompletion=complete_engines,
        help="Where points run: local or dask.",
    ),
    scheduler: str | None = typer.Option(
        None, "--scheduler", metavar="ADDRESS", help="With dask: address of the scheduler."
    ),
    jobs: int | None = typer.Option(None, "--jobs", "-j", metavar="N", help="Worker processes; default: one per CPU."),
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Solve a problem at every point of a study, one row each.

    A second call resumes a stopped sweep. Exit code 0: some point has a plan; 1: none has, or a better cluster is
    slower (a bug in nest); 2: bad input; 130: stopped by Ctrl-C.
    """
    steps = StepLine()
    with ExitStack() as ended:
        ended.callback(steps.clear)
        try:
            result = verbs.sweep(
                study,
                output=output,
                engine=engine,
                scheduler=scheduler,
                jobs=jobs,
                progress=lambda done, of: steps.tell("solving points", done, of),
            )
        except KeyboardInterrupt:
            steps.clear()
            note_once([f"{output} keeps the solved points; run the same command again to continue."])
            raise
    warn_of_plugins(*result.warnings)
    _show(result, output)
    note_once(_refusals(result, "invalid"))
    failed = [*_refusals(result, "error"), *result.contradictions]
    for sentence in failed:
        fail(f"internal error: {sentence}")
    if failed or all(row.get("batch_time") is None for row in result.rows):
        raise typer.Exit(NO_PLAN)


def _refusals(result: "SweepResult", status: str) -> list[str]:
    """Why rows are of a status, each reason once, and a few of them."""
    reasons: dict[str, list[int]] = {}
    for number, row in enumerate(result.rows, 1):
        if row["status"] == status:
            reasons.setdefault(row["reason"], []).append(number)
    rows = {
        reason: f"row {numbers[0]}" + (f" and {len(numbers) - 1} more" if numbers[1:] else "")
        for reason, numbers in reasons.items()
    }
    return [f"{where}: {reason}" for reason, where in rows.items()][:MOST_REASONS]


def _show(result: "SweepResult", output: Path) -> None:
    """Print the rows, where they are few, and how many there are of each status."""
    if len(result.rows) <= MOST_SHOWN:
        varied = result.columns[: result.columns.index("key")]
        degrees = result.columns[result.columns.index("cost") + 1 :]
        header = (*varied, "status", "step time", *(name for name in degrees if _says_something(name, result)))
        rows = [
            [_cell(row.get(name)) if name != "step time" else _time(row.get("batch_time")) for name in header]
            for row in result.rows
        ]
        show_table(header, rows)
    points = f"{len(result.rows)} point" + "s" * (len(result.rows) > 1)
    counts = ", ".join(f"{count} {status}" for status, count in result.statuses.items())
    typer.echo(f"{output}: {points}, {counts}; {result.solved} solved now")


def _says_something(name: str, result: "SweepResult") -> bool:
    """Return whether any plan has another degree than 1; what is no degree always does."""
    return name in ("schedule", "zero", "recompute") or any(row.get(name) not in (None, 1) for row in result.rows)


def _cell(value: object) -> str:
    return "" if value is None else str(value)


def _time(seconds: float | None) -> str:
    return "" if seconds is None else format_seconds(seconds)
