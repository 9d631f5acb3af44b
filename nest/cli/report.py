"""`nest report`: a plan as one HTML page."""

from pathlib import Path

import typer

from nest.cli.options import STRICT_PLUGINS
from nest.cli.output import warn, write

USUAL_OUTPUT = Path("report.html")
"""In the current folder, where nobody says another place."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("report")(report)


def report(
    plan: Path = typer.Argument(..., metavar="PLAN", help="A plan file, as `nest solve --output` writes it."),
    output: Path = typer.Option(USUAL_OUTPUT, "--output", "-o", metavar="FILE", help="Write the page to this file."),
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Write a plan as one HTML page that needs no network: figures, launch flags, cluster, memory, time.

    The plan is checked first. Exit code 0: done, also for a plan that says that nothing is feasible; 2: bad input.
    """
    from nest import reporting
    from nest.files import check_writable
    from nest.hooks.registry import registry

    check_writable(output)
    text = reporting.report(plan)
    warn(registry().warnings)
    write(output, text)
    typer.echo(output)
