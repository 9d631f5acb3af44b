"""`nest plugins new`: a working plug-in distribution to begin with."""

from pathlib import Path

import typer


def register(group: typer.Typer) -> None:
    """Add the command."""
    group.command("new")(new)


def new(
    name: str = typer.Argument(..., metavar="NAME", help="The name of the distribution, and of its folder."),
    kind: str = typer.Option(
        ...,
        "--kind",
        "-k",
        metavar="KIND",
        help="What it brings: strategy, collective-model, cost-model, layer-times, schedule, model-importer, "
        "topology-importer, planner, exporter or stack.",
    ),
    output: Path = typer.Option(Path(), "--output", "-o", metavar="DIR", help="Make the folder in this one."),
) -> None:
    """Write a plug-in that works, with tests that pass: pyproject.toml, a module, tests and a README.

    Exit code 0: done; 2: the name cannot be used or is taken, or there is such a folder already.
    """
    from nest.io import write_folder
    from nest.testing.skeleton import skeleton

    texts = skeleton(name, kind)
    folder = output / name
    write_folder(folder, texts)
    for path in texts:
        typer.echo(str(folder / path))
