"""`nest check`: every number of a plan, recomputed without the solvers."""

from pathlib import Path

import typer

from nest.cli.options import STRICT_PLUGINS
from nest.cli.output import DONE, NO_PLAN, screen, warn


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("check")(check)


def check(
    plan: Path = typer.Argument(..., metavar="PLAN", help="A plan file, as `nest solve --output` writes it."),
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Recompute every number of a plan from its decisions and its problem, and compare; run its schedule's order.

    Exit code 0: all agree to 1e-9; 1: some do not; 2: bad input.
    """
    from nest import api
    from nest.hooks.registry import registry
    from nest.report import certificate_text
    from nest.report.paragraph import opening, paragraph
    from nest.report.screen import Tone

    report = api.check(plan)
    warn((*registry().warnings, *report.notes))
    for sentence in report.disagreements:
        typer.echo(paragraph(sentence, screen(), 2))
    if report.ok:
        told = f" {report.compared} values recomputed and equal."
        typer.echo(opening("The plan holds:", Tone.GOOD, told, screen()))
        if report.certificate is not None:
            typer.echo(paragraph(certificate_text(report.certificate.to_dict()), screen()))
    raise typer.Exit(DONE if report.ok else NO_PLAN)
