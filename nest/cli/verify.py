"""`nest verify`: a second solver proves a plan optimal, or shows a better one."""

from pathlib import Path

import typer

from nest import api
from nest.cli.options import PLAN, STRICT_PLUGINS
from nest.cli.options import time_limit as time_limit_option
from nest.cli.output import (
    DONE,
    NO_PLAN,
    screen,
    show_paragraph,
    stoppable,
    to_json,
    unwritten,
    warn_of_plugins,
    warn_once,
)
from nest.cli.progress import PROVING, progress_line
from nest.solve.effort import Deadline


def verify(
    plan: Path = PLAN,
    time_limit: float | None = time_limit_option("Time limit, such as 5min."),
    free: bool = typer.Option(False, "--free", help="Also try stages in any device order."),
    workers: int = typer.Option(1, "--workers", metavar="N", help="CP-SAT threads."),
    jobs: int | None = typer.Option(None, "--jobs", "-j", metavar="N", help="Processes; default: one per CPU."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document and nothing else."),
    output: Path | None = typer.Option(None, "--output", "-o", help="Write a better plan, if found, to this file."),
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Prove a plan optimal with OR-Tools CP-SAT, or find a better one.

    The plan is checked first. Exit code 0: proved; 1: found a better plan, ran out of time, or the check failed; 2:
    bad input.
    """
    from nest.io import check_writable
    from nest.report.text.summary import summary, verdict_text

    if output is not None:
        check_writable(output, plan)
    checked = api.check(plan)
    warn_once(checked.notes)
    if not checked.ok:
        for sentence in checked.disagreements:
            show_paragraph(sentence, 2, errors=as_json)
        raise typer.Exit(NO_PLAN)
    deadline = Deadline.of(time_limit)
    with progress_line(PROVING) as progress, stoppable(deadline):
        verdict = api.verify(plan, free=free, time_limit=deadline, workers=workers, jobs=jobs, progress=progress)
    warn_of_plugins()
    better = verdict.better
    failed = None if output is None or better is None else unwritten(output, to_json(better.to_dict()) + "\n")
    if as_json or failed is not None:
        typer.echo(to_json(verdict.to_dict()))
    else:
        typer.echo(verdict_text(verdict.verification, screen()))
        if better is not None:
            typer.echo("\n" + summary(better, screen()))
    if failed is not None:
        raise failed
    raise typer.Exit(DONE if verdict.status == "proved" else NO_PLAN)
