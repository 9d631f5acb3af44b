"""`nest explain`: why a plan is what it is, and what would change it."""

from pathlib import Path

import typer

from nest.cli.options import STRICT_PLUGINS
from nest.cli.options import time_limit as time_limit_option
from nest.cli.output import NO_PLAN, screen, to_json, warn
from nest.cli.progress import share_line


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("explain")(explain)


def explain(
    plan: Path = typer.Argument(..., metavar="PLAN", help="A plan file, as `nest solve --output` writes it."),
    only: list[str] = typer.Option(
        [],
        "--only",
        metavar="PART",
        help="One part: binding, constraints, alternatives or flips; may be repeated. Left out, all of them.",
    ),
    time_limit: float | None = time_limit_option("Time for each search; then the best plan so far is taken."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document and nothing else."),
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Explain a plan: what binds, what restrictions cost, the next best by decision, and what would change the answer.

    The plan is checked first; each answer but what binds is a search of its own. Exit code 0: done; 1: the plan says
    that nothing is feasible, which is explained, too; 2: bad input.
    """
    from nest import explaining
    from nest.hooks.registry import registry
    from nest.report.explanation import explanation_text

    with share_line() as tell:
        found = explaining.explain(plan, only=only, time_limit=time_limit, progress=tell)
    warn(registry().warnings)
    told = found.to_dict()
    typer.echo(to_json(told) if as_json else explanation_text(told, screen()))
    if found.plan.status == "infeasible":
        raise typer.Exit(NO_PLAN)
