"""`nest calibrate`: coefficients of the catalogue from measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nest.cli.output import to_json, write

if TYPE_CHECKING:
    from nest.calibrate.links import Calibrated


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    group.command("collectives")(collectives)
    # A sub-app of one command would lose that command's name.
    group.callback()(_about)
    app.add_typer(group, name="calibrate", help="Fit the catalogue's coefficients to measurements.")


def _about() -> None:
    """Fit the catalogue's coefficients to measurements."""


def collectives(
    files: list[Path] = typer.Argument(
        ...,
        metavar="FILES...",
        help="Measured collectives: tables of aiconfigurator (.parquet), JSON lines (.jsonl), output of nccl-tests.",
    ),
    output: Path | None = typer.Option(None, "--output", metavar="DIR", help="Write the links into this folder."),
    link: str | None = typer.Option(None, "--link", help="The link of the catalogue that was measured."),
    prior: str = typer.Option(
        "catalogue", help="What the fit begins at: the catalogue's lines, or the constants NCCL plans with (nccl)."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document and nothing else."),
) -> None:
    """Fit what links cost to measured collectives; print the errors before and after, by table, kind and size.

    Exit code 0: done; 2: bad input.
    """
    from nest.calibrate.errors import table
    from nest.calibrate.link_file import link_text
    from nest.calibrate.links import CATALOGUE, NCCL, calibrate_links, read_measurements
    from nest.errors import InputError
    from nest.hooks.registry import registry

    if prior not in (CATALOGUE, NCCL):
        raise InputError(f"--prior must be {CATALOGUE} or {NCCL}, is {prior!r:.40}.")
    if output is not None and not output.is_dir():
        raise InputError(f"--output {output}: there is no such folder.")
    model = next(iter(registry().collective_models().values()))
    found = calibrate_links(read_measurements(files, link), model, prior)
    if as_json:
        typer.echo(to_json({"links": {each.link.name: _plain(each) for each in found}}))
    for each in found:
        if not as_json:
            typer.echo(
                "\n".join(
                    [
                        f"{each.link.name}: median and 90th percentile of relative errors",
                        *table(each.before, each.after),
                        "",
                    ]
                )
            )
        if output is not None:
            write(output / f"{each.link.name}.toml", link_text(each.link))


def _plain(found: Calibrated) -> dict[str, object]:
    from attrs import asdict

    from nest.files import unstructure

    rows = [
        {
            "table": table,
            "kind": kind,
            "bytes": reach,
            "before": asdict(found.before[table, kind, reach]),
            "after": asdict(after),
        }
        for (table, kind, reach), after in found.after.items()
    ]
    return {"entry": unstructure(found.link), "errors": rows}
