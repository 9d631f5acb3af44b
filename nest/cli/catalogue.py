"""`nest devices`, `nest clusters`, `nest topology profiles`: what the catalogue holds, or one entry with sources."""

from collections.abc import Mapping
from typing import Any

import typer

from nest.cli.output import to_json


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("devices")(devices)
    app.command("clusters")(clusters)


def devices(
    name: str | None = typer.Argument(None, metavar="[NAME]", help="A device from the list."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document and nothing else."),
) -> None:
    """List the devices nest knows, or describe one with the sources of its figures.

    Exit code 0: done; 2: bad input.
    """
    from nest.catalogue import device
    from nest.catalogue import devices as known

    if name is not None:
        content = _plain(device(name, "nest devices"))
        typer.echo(to_json(content) if as_json else "\n".join(_described(content)))
        return
    rows = [_plain(each) for each in known().values()]
    if as_json:
        typer.echo(to_json({"devices": rows}))
    else:
        typer.echo("\n".join(["device           memory   bandwidth   peak bf16 or fp16", *map(_device_line, rows)]))


def clusters(
    name: str | None = typer.Argument(
        None, metavar="[NAME]", help="A cluster from the list; NAME-N is NAME with N devices."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document and nothing else."),
) -> None:
    """List the clusters nest knows, or describe one with the sources of its figures.

    Exit code 0: done; 2: bad input.
    """
    from nest.catalogue import clusters as known
    from nest.catalogue import named_cluster

    if name is not None:
        content = _plain(named_cluster(name, "nest clusters"))
        typer.echo(to_json(content) if as_json else "\n".join(_described(content)))
        return
    rows = [_plain(each) for each in known().values()]
    if as_json:
        typer.echo(to_json({"clusters": rows}))
        return
    width = max(len(row["name"]) for row in rows)
    typer.echo("\n".join(f"{row['name']:{width}}  {row['description']}" for row in rows))


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
        content = _plain(profile(name, "nest topology profiles"))
        typer.echo(to_json(content) if as_json else "\n".join(_described(content)))
        return
    rows = [_plain(each) for each in known().values()]
    if as_json:
        typer.echo(to_json({"profiles": rows}))
        return
    width = max(len(row["name"]) for row in rows)
    typer.echo("\n".join(f"{row['name']:{width}}  {row['description']}" for row in rows))


def _plain(entry: Any) -> dict[str, Any]:
    """An entry as plain data, without what it leaves open."""
    from attrs import asdict

    return asdict(
        entry, filter=lambda _, value: value is not None, value_serializer=lambda _, __, value: _listed(value)
    )


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _device_line(row: Mapping[str, Any]) -> str:
    peak = row["peak"].get("bf16", row["peak"].get("fp16", 0.0))
    return (
        f"{row['name']:14}{row['memory'] / 1e9:6.0f} GB"
        f"{row['memory_bandwidth'] / 1e9:8.0f} GB/s{peak / 1e12:11.1f} TFLOP/s"
    )


def _described(content: Mapping[str, Any], indent: str = "") -> list[str]:
    """An entry as lines, figures in SI units."""
    lines = []
    for key, value in content.items():
        if isinstance(value, Mapping):
            lines += [f"{indent}{key}", *_described(value, indent + "  ")]
        elif isinstance(value, list):
            lines += [f"{indent}{key}", *(f"{indent}  {_item(item)}" for item in value)]
        else:
            lines.append(f"{indent}{key}  {_figure(value)}")
    return lines


def _item(item: Any) -> str:
    if isinstance(item, Mapping):
        return ", ".join(f"{key} {_figure(value)}" for key, value in item.items())
    return str(item)


def _figure(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
