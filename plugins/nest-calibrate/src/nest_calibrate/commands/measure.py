"""`nest measure`: step times and peaks out of the logs of training frameworks."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nest.hooks.registry import registry
from nest.public.commands import NODES, STRICT_PLUGINS, VOCABULARY, note, screen, to_json, warn_of_plugins
from nest.public.layout import Screen, paragraph, table
from nest.units import format_bytes, format_seconds, percent

if TYPE_CHECKING:
    from nest_calibrate.measured import Measured


def measure(
    logs: list[Path] = typer.Argument(..., metavar="LOG...", help="Training logs of any supported framework."),
    problem: Path | None = typer.Option(
        None, "--problem", metavar="FILE", help="Problem or plan of the run; default: beside the log."
    ),
    cluster: str | None = typer.Option(
        None, "--cluster", metavar="NAME|FILE", help="Cluster of the run, if the log has its flags."
    ),
    nodes: int | None = NODES,
    vocabulary: int | None = VOCABULARY,
    output: Path | None = typer.Option(
        None, "--output", "-o", metavar="FILE", help="Write the measurements to this file."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print JSON lines instead of a table."),
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Read step times and peak memory from training logs.

    For each log, nest looks for a plan or problem of the same name (run.json for run.log), Megatron-LM flags
    (run.sh), plan.json, problem.yaml, or arguments in the log. Exit code 0: done; 2: bad input.
    """
    from nest.io import check_writable, write_text
    from nest_calibrate.measured import RunOptions, measure_all

    if output is not None:
        check_writable(output, *logs)
    measured = measure_all(logs, RunOptions(problem, cluster, nodes, vocabulary), registry())
    warn_of_plugins()
    for each in measured:
        for text in each.notes:
            note(f"note: {each.log}: {text}")
        if each.run is None:
            note(f"note: {each.log}: unknown run; add --problem, or put its plan or flags beside the log.")
    lines = "".join(to_json(each.line(), one_line=True) + "\n" for each in measured)
    if output is not None:
        write_text(output, lines)
    else:
        typer.echo(lines, nl=False)
    if not as_json:
        shown_on = screen(errors=output is None)
        typer.echo(_table(measured, shown_on), err=output is None)


def _table(measured: "list[Measured]", shown_on: Screen) -> str:
    """The runs, the fastest of one task first, beside what is predicted of them."""
    ranked = _ranked(measured)
    header = ("log", "framework", "steps", "measured", "predicted", "ratio", "peak memory", "estimated")
    lines = [table(header, [_row(each) for each in ranked or measured], (2, 3, 4, 5, 6, 7), shown_on, ruled=False)]
    if ranked:
        predicted = min(ranked, key=lambda each: _predicted(each) or 0.0)
        verdict = f"{ranked[0].log} is the fastest, as predicted."
        if predicted is not ranked[0]:
            slower = (predicted.seconds or 0.0) / (ranked[0].seconds or 1.0) - 1
            verdict = (
                f"{ranked[0].log} is the fastest; the predicted one, {predicted.log}, is {percent(slower)} slower."
            )
        lines.append(paragraph(verdict, shown_on))
    return "\n".join(lines)


def _ranked(measured: "list[Measured]") -> "list[Measured]":
    """The runs by their time, where they are plans of one task; else none."""
    from attrs import evolve

    runs = [each.run for each in measured if each.run is not None and each.seconds is not None]
    tasks = [evolve(run.problem, fixed=None) for run in runs]
    if len(runs) < 2 or len(runs) < len(measured) or any(task != tasks[0] for task in tasks):
        return []
    return sorted(measured, key=lambda each: each.seconds or 0.0)


def _predicted(each: "Measured") -> float | None:
    return None if each.plan is None else each.plan.batch_time


def _row(each: "Measured") -> tuple[str, ...]:
    """Cells of a run; its peak and estimate are those that a calibration compares."""
    from nest_calibrate.memory import verdict

    seconds, predicted = each.seconds, _predicted(each)
    seen = None if each.run is None or each.plan is None else verdict(each.run, each.plan)
    peak, estimate = (each.figures.peak, None) if seen is None else (seen.peak, seen.estimate)
    peak = None if each.figures.failed else peak
    return (
        str(each.log),
        each.figures.framework or "-",
        str(each.figures.steps),
        "out of memory" if each.figures.failed else "-" if seconds is None else format_seconds(seconds),
        "-" if predicted is None else format_seconds(predicted),
        "-" if seconds is None or predicted is None else f"{seconds / predicted:.3f}",
        "-" if peak is None else format_bytes(peak),
        "-" if estimate is None else format_bytes(estimate),
    )
