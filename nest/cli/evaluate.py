"""`nest evaluate`: the price of a plan that is already decided."""

from pathlib import Path

import typer

from nest.cli.options import STRICT_PLUGINS
from nest.cli.output import tell_assumed, to_json, warn


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("evaluate")(evaluate)


def evaluate(
    problems: list[Path] = typer.Argument(..., metavar="PROBLEM...", help="Problem files: YAML, JSON or TOML."),
    fix: list[str] = typer.Option([], "--fix", metavar="NAME=VALUE", help="A decision; may be repeated."),
    as_json: bool = typer.Option(False, "--json", help="Print the plan as one JSON document and nothing else."),
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Price the plan that `fixed` describes instead of searching.

    What it leaves open takes the usual framework default: degree 1, ZeRO 0, 1F1B, as many replicas as the devices
    allow, blocks split evenly. Memory beyond capacity is reported (`fits: false`), not refused.
    """
    from nest import planner
    from nest.formulate.target import beyond_target
    from nest.hooks.registry import registry
    from nest.report import summary

    decisions = dict(_decision(text) for text in fix)
    for problem in problems:
        plan = planner.evaluate(problem, fix=decisions)
        # What people run today is priced, whoever can run it.
        told = registry().run(lambda plan=plan: beyond_target(plan, registry()))  # type: ignore[misc]
        warn((*registry().warnings, *(f"search.target: {sentence}." for sentence in told)))
        tell_assumed(plan.problem["cluster"].get("assumed", ()))
        if as_json or len(problems) > 1:
            typer.echo(to_json(plan.to_dict(), one_line=len(problems) > 1))
        else:
            typer.echo(summary(plan))


def _decision(text: str) -> tuple[str, object]:
    """`NAME=VALUE` as a name and a number, truth value, list or word."""
    from nest.errors import InputError
    from nest.files import read_value

    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise InputError(f"--fix takes NAME=VALUE, such as --fix tp=8; got {text!r}.")
    return name.strip(), read_value(value.strip())
