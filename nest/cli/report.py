"""`nest report`: a plan as one HTML page."""

from pathlib import Path

import typer

from nest import api
from nest.cli.options import PLAN, STRICT_PLUGINS
from nest.cli.options import time_limit as time_limit_option
from nest.cli.output import warn_of_plugins
from nest.cli.progress import StepLine

USUAL_OUTPUT = Path("report.html")
"""In the current folder, where nobody says another place."""


def report(
    plan: Path = PLAN,
    output: Path = typer.Option(USUAL_OUTPUT, "--output", "-o", metavar="FILE", help="Write the page to this file."),
    without: list[str] = typer.Option(
        [],
        "--without",
        metavar="PART",
        help="Leave out alternatives, frontier or sensitivity, which take searches; may be repeated.",
    ),
    time_limit: float | None = time_limit_option("Time for each search; then the best plan so far is taken."),
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Write a plan as one HTML page that needs no network: figures, launch flags, cluster, batch, memory, time.

    The plan is checked first. What it beats, or what would let one fit, and what more or less devices, memory and
    bandwidth are worth takes searches of their own.
    Exit code 0: done, also for a plan that says that nothing is feasible; 2: bad input.
    """
    from nest.io import check_writable, write_text

    check_writable(output, plan)
    line = StepLine()
    try:
        text = api.report_page(
            plan,
            without=without,
            time_limit=time_limit,
            progress=lambda search, done, most: line.tell(search, done, most, at_most=True),
        )
    finally:
        line.clear()
    warn_of_plugins()
    write_text(output, text)
    typer.echo(output)
