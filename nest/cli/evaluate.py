"""`nest evaluate`: the price of a plan that is already decided."""

from pathlib import Path

import typer

from nest.cli.options import STRICT_PLUGINS, TOKENS, changes_of
from nest.cli.output import screen, tell_assumed, tell_implied, tell_outside, tell_violated, to_json, warn


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("evaluate")(evaluate)


def evaluate(
    problems: list[Path] = typer.Argument(
        None, metavar="[PROBLEM...]", help="Problem files: YAML, JSON or TOML; needed unless flags are given."
    ),
    fix: list[str] = typer.Option([], "--fix", metavar="NAME=VALUE", help="A decision; may be repeated."),
    tokens: str | None = TOKENS,
    as_json: bool = typer.Option(False, "--json", help="Print the plan as one JSON document and nothing else."),
    from_megatron: Path | None = typer.Option(
        None,
        "--from-megatron",
        metavar="FILE",
        help="Price what this script (or YAML map) of Megatron-LM flags runs; it is read, never run. A PROBLEM says "
        "what the flags do not.",
    ),
    cluster: str | None = typer.Option(
        None, "--cluster", metavar="NAME|FILE", help="With flags: the cluster, in place of the problem's."
    ),
    nodes: int | None = typer.Option(None, "--nodes", metavar="N", help="With flags: machines they are launched on."),
    vocabulary: int | None = typer.Option(
        None, "--vocabulary", metavar="N", help="With flags: tokens of the vocabulary, where a tokenizer has them."
    ),
    against_best: bool = typer.Option(
        False, "--against-best", help="With flags: also search for the fastest plan, and say how far from it they are."
    ),
    write_problem: Path | None = typer.Option(
        None, "--write-problem", metavar="FILE", help="With flags: write their problem, all open, for `nest solve`."
    ),
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Price the plan that `fixed` describes instead of searching.

    What it leaves open takes the usual framework default: degree 1, ZeRO 0, 1F1B, as many replicas as the devices
    allow, blocks split evenly. Memory beyond capacity (`fits: false`) and constraints that do not hold (`violates`)
    are reported, not refused, and so is what `nest solve` would not try without `fixed` (`outside`).
    """
    from nest import api
    from nest.errors import InputError
    from nest.hooks.registry import registry
    from nest.report import summary

    decisions = dict(_decision(text) for text in fix)
    if from_megatron is not None and tokens is not None:
        raise InputError("--tokens goes with problem files; with flags, give a problem with training.tokens.")
    if from_megatron is not None:
        from nest.cli.from_flags import Asked, evaluate_flags

        evaluate_flags(
            Asked(
                flags=from_megatron,
                framework="megatron",
                problems=tuple(problems or ()),
                cluster=cluster,
                nodes=nodes,
                vocabulary=vocabulary,
                decisions=decisions,
                against_best=against_best,
                write_problem=write_problem,
                as_json=as_json,
            )
        )
        return
    if cluster is not None or nodes is not None or vocabulary is not None or against_best or write_problem is not None:
        raise InputError(
            "--cluster, --nodes, --vocabulary, --against-best and --write-problem go with flags; give --from-megatron."
        )
    if not problems:
        raise InputError("nest evaluate takes a problem file, or flags with --from-megatron.")
    for problem in problems:
        implied: list[str] = []
        plan = api.evaluate(problem, fix=decisions, message=implied.append, changes=changes_of(tokens=tokens))
        warn(registry().warnings)
        tell_outside(plan.outside or (), problem)
        tell_violated(plan.violates, problem)
        tell_assumed(plan.problem["cluster"].get("assumed", ()))
        if as_json or len(problems) > 1:
            typer.echo(to_json(plan.to_dict(), one_line=len(problems) > 1))
        else:
            tell_implied(implied)
            typer.echo(summary(plan, screen()))


def _decision(text: str) -> tuple[str, object]:
    """`NAME=VALUE` as a name and a number, truth value, list or word."""
    from nest.errors import InputError
    from nest.io import read_value

    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise InputError(f"--fix takes NAME=VALUE, such as --fix tp=8; got {text!r}.")
    return name.strip(), read_value(value.strip())
