"""`nest certify`: a proof that a short program checks."""

from pathlib import Path

import typer

from nest.public.commands import NO_PLAN, STRICT_PLUGINS, fail, warn_of_plugins

USUAL_OUTPUT = Path("certificate.json.gz")
"""In the current folder, where nobody says another place."""


def certify(
    plan: Path = typer.Argument(..., metavar="PLAN", help="Plan file, from `nest solve --output`."),
    output: Path = typer.Option(USUAL_OUTPUT, "--output", "-o", metavar="FILE", help="Write the certificate here."),
    compare: Path | None = typer.Option(
        None, "--compare", metavar="FILE", help="Compare this certificate with the plan's problem; write none."
    ),
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Write a proof that no plan is faster than the lower bound.

    `tools/check_certificate.py` checks it without nest.

    Exit code 0: done; 1: no proof found, or the certificate is of another problem; 2: bad input.
    """
    from nest.io import check_writable
    from nest_certificate import verbs
    from nest_certificate.proof import NotProved

    if compare is not None:
        differences = verbs.compare_certificate(plan, compare)
        for each in differences:
            fail(each)
        if differences:
            raise typer.Exit(NO_PLAN)
        typer.echo(f"{compare} has the numbers of this plan's problem.")
        return
    check_writable(output, plan)
    try:
        verbs.certify(plan, output=output)
    except NotProved as error:
        fail(str(error))
        raise typer.Exit(NO_PLAN) from error
    warn_of_plugins()
    typer.echo(output)
