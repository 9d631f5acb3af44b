"""`nest devices`, `clusters`, `stacks`, `topology profiles`: what the catalogue holds, or one entry with sources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import typer

from nest.cli import completion
from nest.cli.options import STRICT_PLUGINS
from nest.cli.output import screen, to_json, warn

if TYPE_CHECKING:
    from nest.catalogue import ClusterEntry
    from nest.report.screen import Screen
    from nest.spec import DeviceSpec, LinkProfile, StackSpec


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("devices")(devices)
    app.command("clusters")(clusters)
    app.command("stacks")(stacks)


def devices(
    name: str | None = typer.Argument(
        None, metavar="[NAME]", autocompletion=completion.devices, help="A device from the list."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document and nothing else."),
) -> None:
    """List the devices nest knows, or describe one with the sources of its figures.

    Exit code 0: done; 2: bad input.
    """
    from nest.catalogue import device
    from nest.catalogue import devices as known

    if name is not None:
        _tell(device(name, "nest devices"), as_json)
    elif as_json:
        typer.echo(to_json({"devices": [_plain(each) for each in known().values()]}))
    else:
        typer.echo(_device_table(known().values(), screen()))


def clusters(
    name: str | None = typer.Argument(
        None,
        metavar="[NAME]",
        autocompletion=completion.clusters,
        help="A cluster from the list; NAME-N is NAME with N devices.",
    ),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document and nothing else."),
) -> None:
    """List the clusters nest knows, or describe one with the sources of its figures.

    Exit code 0: done; 2: bad input.
    """
    from nest.catalogue import clusters as known
    from nest.catalogue import named_cluster

    if name is not None:
        _tell(named_cluster(name, "nest clusters"), as_json)
    elif as_json:
        typer.echo(to_json({"clusters": [_plain(each) for each in known().values()]}))
    else:
        typer.echo(_described_list(list(known().values()), screen()))


def stacks(
    name: str | None = typer.Argument(None, metavar="[NAME]", help="A software stack from the list, or a file of one."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document and nothing else."),
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """List the software stacks nest knows, or describe one: what it does by itself, with the sources of that.

    Exit code 0: done; 2: bad input, or with --strict-plugins a plug-in error.
    """
    from nest.formulate.stack import described
    from nest.hooks.registry import registry

    known = registry()
    entries = known.run(
        lambda: [described(each, known, place="nest stacks") for each in (known.stacks() if name is None else (name,))]
    )
    warn(known.warnings)
    if name is not None:
        _tell(entries[0], as_json)
    elif as_json:
        typer.echo(to_json({"stacks": [_plain(each) for each in entries]}))
    else:
        typer.echo(_stack_table(entries, screen()))


def profiles(
    name: str | None = typer.Argument(None, metavar="[NAME]", help="A link profile from the list."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document and nothing else."),
) -> None:
    """List the link profiles nest knows, or describe one with the sources of its figures.

    Exit code 0: done; 2: bad input.
    """
    from nest.catalogue import profile
    from nest.catalogue import profiles as known

    if name is not None:
        _tell(profile(name, "nest topology profiles"), as_json)
    elif as_json:
        typer.echo(to_json({"profiles": [_plain(each) for each in known().values()]}))
    else:
        typer.echo(_described_list(list(known().values()), screen()))


def _tell(entry: object, as_json: bool) -> None:
    """Print one entry."""
    from nest.report.entry import entry_text

    typer.echo(to_json(_plain(entry)) if as_json else entry_text(entry, screen()))


def _plain(entry: Any) -> dict[str, Any]:
    """An entry as plain data, without what it leaves open."""
    from attrs import asdict

    return asdict(
        entry, filter=lambda _, value: value is not None, value_serializer=lambda _, __, value: _listed(value)
    )


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _device_table(rows: Iterable[DeviceSpec], shown_on: Screen) -> str:
    from nest.report.table import table

    cells = []
    for row in rows:
        peak = row.peak.bf16 or row.peak.fp16 or 0.0
        memory, bandwidth = f"{row.memory / 1e9:.0f} GB", f"{row.memory_bandwidth / 1e9:.0f} GB/s"
        cells.append((row.name, memory, bandwidth, f"{peak / 1e12:.1f} TFLOP/s"))
    return table(("device", "memory", "bandwidth", "peak bf16 or fp16"), cells, (1, 2, 3), shown_on)


def _stack_table(rows: Iterable[StackSpec], shown_on: Screen) -> str:
    from attrs import asdict

    from nest.report.table import table

    cells = []
    for row in rows:
        hidden = [key for key, value in asdict(row.training.overlap).items() if value]
        hidden += [f"pipeline ({', '.join(row.pipeline_overlap)})"] if row.pipeline_overlap else []
        cells.append((row.name, row.version, ", ".join(hidden) or "nothing", ", ".join(row.targets)))
    return table(("stack", "version", "what hides", "targets"), cells, (), shown_on)


def _described_list(rows: Sequence[ClusterEntry | LinkProfile], shown_on: Screen) -> str:
    from nest.report.paragraph import figures

    return figures([(row.name or "", row.description) for row in rows], shown_on)
