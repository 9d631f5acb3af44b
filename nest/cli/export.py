"""`nest export`: a plan as files of other tools."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from attrs import evolve

from nest.cli.options import STRICT_PLUGINS
from nest.cli.output import NO_PLAN, note, screen, to_json, warn
from nest.cli.progress import progress_line

if TYPE_CHECKING:
    from nest.exporting import Exported


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("export")(export)


def export(
    plan: Path | None = typer.Argument(
        None, metavar="PLAN", help="A plan file, as `nest solve --output` or `nest evaluate --json` writes it."
    ),
    to: list[str] = typer.Option([], "--to", metavar="NAME", help="An exporter from the list; may be repeated."),
    output: Path | None = typer.Option(
        None, "--output", "-o", metavar="DIR", help="Write the files into this folder instead of printing them."
    ),
    near: bool = typer.Option(
        False, "--nearest", help="Where the framework cannot run the plan, export the nearest that it can, and say so."
    ),
    listing: bool = typer.Option(False, "--list", help="List the exporters, and what each can express."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document and nothing else."),
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Write a plan as the files of a framework, a launcher or another tool. The plan is checked first.

    Exit code 0: done; 1: the plan says that nothing is feasible, or with --nearest no feasible plan is near; 2: bad
    input, or a plan that the exporter's tool cannot express.
    """
    from nest import exporting, planner
    from nest.errors import InputError
    from nest.hooks.registry import registry
    from nest.report.nearest import nearest_text

    if listing:
        _list(None if plan is None else planner.read_plan(plan), as_json)
        return
    if plan is None or not to:
        raise InputError("nest export takes a plan and --to NAME; `nest export --list` lists the names.")
    read = planner.read_plan(plan)
    if read.status == "infeasible":
        note(f"{plan}: nothing to export, no plan is feasible: {read.diagnosis or 'no reason given'}")
        raise typer.Exit(NO_PLAN)
    progress = progress_line("searching the nearest plan")
    try:
        made = exporting.export(plan, tuple(to), near=near, progress=progress)
    except exporting.NothingNear as nothing:
        note(str(nothing))
        raise typer.Exit(NO_PLAN) from None
    finally:
        if progress is not None:
            progress.clear()
    warn((*registry().warnings, *made.warnings))
    for found in made.nearest.values():
        note(nearest_text(found.to_dict()))
    if output is not None:
        from nest.files import write_files

        made = evolve(made, files={**made.plans, **made.files})
        write_files(output, made.files)
    _tell(made, output, as_json)


def _tell(made: "Exported", output: Path | None, as_json: bool) -> None:
    """Print the files, or where they are."""
    places = [str(output / name) for name in made.files] if output is not None else []
    if as_json:
        document: dict[str, Any] = {"files": dict(made.files), "warnings": list(made.warnings)}
        if made.nearest:
            document["nearest"] = {name: found.to_dict() for name, found in made.nearest.items()}
        typer.echo(to_json(document if output is None else {**document, "written": places}))
    elif output is not None:
        typer.echo("\n".join(places))
    elif len(made.files) == 1:
        typer.echo(next(iter(made.files.values())), nl=False)
    else:
        # As head(1) and tail(1) print several files.
        typer.echo("\n".join(f"==> {name} <==\n{text}" for name, text in made.files.items()), nl=False)


def _list(plan: Any, as_json: bool) -> None:
    """Print what exporters there are."""
    from nest.exporting import exporters
    from nest.hooks.registry import registry
    from nest.report.table import table

    rows = exporters(plan)
    warn(registry().warnings)
    if as_json:
        typer.echo(to_json({"exporters": rows}))
    else:
        cells = [(row["name"], row["summary"], row["limits"]) for row in rows]
        typer.echo(table(("name", "writes", "limits"), cells, screen=screen()))
