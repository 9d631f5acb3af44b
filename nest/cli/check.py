"""`nest check`: every number of a plan, recomputed without the solvers."""

from pathlib import Path

import typer

from nest import api
from nest.cli.options import PLAN, STRICT_PLUGINS
from nest.cli.output import DONE, NO_PLAN, screen, show_paragraph, warn_of_plugins
from nest.report.text.layout import Tone, opening

ESTIMATES = ("batch_time_range.", "fit_probability ")
"""Begin what a plan states by the calibration of the nest that made it."""


def check(plan: Path = PLAN, strict_plugins: bool = STRICT_PLUGINS) -> None:
    """Recompute every number of a plan, and simulate its schedule.

    Exit code 0: all numbers agree to 1e-9; 1: some differ; 2: bad input.
    """
    from nest.report.text.summary import certificate_text

    report = api.check(plan)
    warn_of_plugins(*report.notes)
    for sentence in report.disagreements:
        show_paragraph(sentence, 2)
    if report.disagreements and all(sentence.startswith(ESTIMATES) for sentence in report.disagreements):
        show_paragraph("Its decisions and step time hold. Solve its problem again for the estimates of this nest.", 2)
    if report.ok:
        rest = f" {report.compared} values recomputed and equal."
        typer.echo(opening("The plan holds:", Tone.GOOD, rest, screen()))
        if report.certificate is not None:
            show_paragraph(certificate_text(report.certificate.to_dict()))
    raise typer.Exit(DONE if report.ok else NO_PLAN)
