"""`nest export`: a plan as files of other tools."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from attrs import evolve

from nest import api
from nest.cli.options import JSON, STRICT_PLUGINS, complete_exporters
from nest.cli.output import NO_PLAN, note, show_listing, to_json, warn_of_plugins
from nest.cli.progress import progress_line
from nest.errors import InputError, InputErrors

if TYPE_CHECKING:
    from nest.whatif.launch_files import Exported


def export(
    plan: Path | None = typer.Argument(
        None, metavar="PLAN", help="Plan file, or a folder of plans from `nest solve --best`."
    ),
    to: list[str] = typer.Option(
        [], "--to", metavar="NAME", autocompletion=complete_exporters, help="Exporter, such as megatron; repeatable."
    ),
    output: Path | None = typer.Option(None, "--output", "-o", metavar="DIR", help="Write the files into this folder."),
    release: str | None = typer.Option(
        None, "--for", metavar="RELEASE", help="Release of the framework, such as 0.16; the newest if left out."
    ),
    near: bool = typer.Option(False, "--nearest", help="If needed, export the nearest plan it can run."),
    listing: bool = typer.Option(False, "--list", help="List the exporters and the plans they support."),
    as_json: bool = JSON,
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Write the launch files of a plan for a framework or launcher.

    The plan is checked first. Exit code 0: done; 1: no feasible plan; 2: bad input, or a plan the framework cannot
    run.
    """
    from nest.io import write_files
    from nest.report.text.comparison import nearest_text
    from nest.whatif.launch_files import NothingNear, exporters

    if listing:
        rows = exporters(None if plan is None else api.read_plan(plan))
        show_listing(
            as_json,
            "exporters",
            rows,
            {"name": "name", "releases": "releases", "writes": "summary", "limits": "limits"},
        )
        return
    if plan is None or not to:
        raise InputError("nest export needs a plan and --to NAME; `nest export --list` lists the names.")
    if plan.is_dir():
        _export_folder(plan, tuple(to), output, near, release, as_json)
        return
    read = api.read_plan(plan)
    if read.status == "infeasible":
        note(f"{plan}: nothing to export; the problem has no feasible plan: {read.diagnosis or 'no reason given'}")
        raise typer.Exit(NO_PLAN)
    try:
        made = _made(plan, tuple(to), near, release)
    except NothingNear as nothing:
        note(str(nothing))
        raise typer.Exit(NO_PLAN) from None
    warn_of_plugins(*made.warnings)
    for nearest in made.nearest.values():
        note(nearest_text(nearest.to_dict()))
    if output is not None:
        made = evolve(made, files={**made.plans, **made.files})
        write_files(output, made.files)
    _tell(made, output, as_json)


def _made(plan: Path, to: tuple[str, ...], near: bool, release: str | None) -> "Exported":
    with progress_line("searching for the nearest plan") as progress:
        return api.exported(plan, to, near=near, release=release, progress=progress)


def _export_folder(
    folder: Path, to: tuple[str, ...], output: Path | None, near: bool, release: str | None, as_json: bool
) -> None:
    """Write the files of every plan in a folder into a separate folder beside the plan.

    Those that cannot be exported are reported, and the others are written.
    """
    from nest.io import write_files
    from nest.report.text.comparison import nearest_text
    from nest.whatif.launch_files import Exported, NothingNear

    plans = sorted(folder.glob("*.json"), key=lambda path: (len(path.name), path.name))
    if not plans or output is None:
        why = "has no plan file (.json)" if not plans else "is a folder of plans; add --output DIR"
        raise InputError(f"{folder} {why}.")
    files: dict[str, str] = {}
    refused = []
    for path in plans:
        try:
            made = _made(path, to, near, release)
        except (InputError, NothingNear) as error:
            refused.append(f"{path}: {error}")
            continue
        warn_of_plugins(*(f"{path}: {each}" for each in made.warnings))
        for nearest in made.nearest.values():
            note(f"{path}: {nearest_text(nearest.to_dict())}")
        own = {"plan.json": path.read_text(encoding="utf-8"), **made.plans, **made.files}
        files |= {f"{path.stem}/{name}": text for name, text in own.items()}
    if files:
        write_files(output, files)
        _tell(Exported(files, ()), output, as_json)
    if refused:
        raise InputErrors(refused)


def _tell(made: "Exported", output: Path | None, as_json: bool) -> None:
    """Print the files, or their paths."""
    places = [str(output / name) for name in made.files] if output is not None else []
    if as_json:
        document: dict[str, Any] = {"files": dict(made.files), "warnings": list(made.warnings)}
        if made.nearest:
            document["nearest"] = {name: nearest.to_dict() for name, nearest in made.nearest.items()}
        typer.echo(to_json(document if output is None else {**document, "written": places}))
    elif output is not None:
        typer.echo("\n".join(places))
    elif len(made.files) == 1:
        typer.echo(next(iter(made.files.values())), nl=False)
    else:
        # As head(1) and tail(1) print several files.
        typer.echo("\n".join(f"==> {name} <==\n{text}" for name, text in made.files.items()), nl=False)
