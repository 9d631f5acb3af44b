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
    time_limit: float | None = time_limit_option("Time after which what is not proved is left open."),
    free: bool = typer.Option(
        False, "--free", help="Also let blocks lie anywhere and in any order, and say what keeping their order costs."
    ),
    workers: int = typer.Option(1, "--workers", metavar="N", help="Threads CP-SAT uses."),
    jobs: int | None = typer.Option(
        None, "--jobs", "-j", metavar="N", help="Processes that bound cases; left out, one for each processor."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print the answer as one JSON document and nothing else."),
    output: Path | None = typer.Option(None, "--output", "-o", help="Write the better plan to this file, if any."),
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Ask OR-Tools CP-SAT for a better plan; where there is none, the plan is proved optimal.

    The plan is checked first, as `nest check` does. Exit code 0: proved; 1: a better plan was found, or the time was up
    first, or the check failed; 2: bad input.
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
