"""`nest devices`, `clusters`, `stacks`, `topology profiles`: lists of the catalogue, or one entry with sources."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import typer

from nest.cli.options import JSON, STRICT_PLUGINS, complete_clusters, complete_devices
from nest.cli.output import screen, show, show_table, to_json, warn_of_plugins
from nest.hooks.registry import registry
from nest.report.text.layout import figures


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("devices")(devices)
    app.command("clusters")(clusters)
    app.command("stacks")(stacks)


def devices(
    name: str | None = typer.Argument(
        None, metavar="[NAME]", autocompletion=complete_devices, help="Name of a device."
    ),
    as_json: bool = JSON,
) -> None:
    """List the devices, or describe one and its sources.

    Exit code 0: done; 2: bad input.
    """
    from nest.catalogue import device
    from nest.catalogue import devices as known
    from nest.catalogue.spellings import device_called

    if name is not None:
        _show_entry(device(device_called(name) or name, "nest devices"), as_json)
    else:
        _show_list("devices", known().values(), as_json, _device_table)


def clusters(
    name: str | None = typer.Argument(
        None, metavar="[NAME]", autocompletion=complete_clusters, help="Name of a cluster; NAME-N has N devices."
    ),
    as_json: bool = JSON,
) -> None:
    """List the clusters, or describe one and its sources.

    Exit code 0: done; 2: bad input.
    """
    from nest.catalogue import clusters as known
    from nest.catalogue import named_cluster
    from nest.catalogue.spellings import cluster_called

    if name is not None:
        _show_entry(named_cluster(cluster_called(name), "nest clusters"), as_json)
    else:
        _show_list("clusters", known().values(), as_json, _descriptions)


def stacks(
    name: str | None = typer.Argument(None, metavar="[NAME]", help="Name or file of a software stack."),
    as_json: bool = JSON,
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """List the software stacks, or describe one and its sources.

    Exit code 0: done; 2: bad input, or with --strict-plugins a plug-in error.
    """
    from nest.formulate.stack import described

    known = registry()
    entries = known.run(
        lambda: [described(each, known, place="nest stacks") for each in (known.stacks() if name is None else (name,))]
    )
    warn_of_plugins()
    if name is not None:
        _show_entry(entries[0], as_json)
    else:
        _show_list("stacks", entries, as_json, _stack_table)


def profiles(
    name: str | None = typer.Argument(None, metavar="[NAME]", help="Name of a link profile."), as_json: bool = JSON
) -> None:
    """List the link profiles, or describe one and its sources.

    Exit code 0: done; 2: bad input.
    """
    from nest.catalogue import profile
    from nest.catalogue import profiles as known

    if name is not None:
        _show_entry(profile(name, "nest topology profiles"), as_json)
    else:
        _show_list("profiles", known().values(), as_json, _descriptions)


def _show_entry(entry: object, as_json: bool) -> None:
    from nest.report.text.entry import entry_text

    show(as_json, _plain(entry), lambda screen: entry_text(entry, screen))


def _show_list(kind: str, entries: Iterable[Any], as_json: bool, table: Callable[[Iterable[Any]], None]) -> None:
    if as_json:
        typer.echo(to_json({kind: [_plain(each) for each in entries]}))
    else:
        table(entries)


def _plain(entry: Any) -> dict[str, Any]:
    """Return an entry as plain data, without open values."""
    from attrs import asdict

    def listed(_: object, __: object, value: Any) -> Any:
        return list(value) if isinstance(value, tuple) else value

    return asdict(entry, filter=lambda _, value: value is not None, value_serializer=listed)


def _device_table(entries: Iterable[Any]) -> None:
    cells = []
    for each in entries:
        peak = each.peak.bf16 or each.peak.fp16 or 0.0
        memory, bandwidth = f"{each.memory / 1e9:.0f} GB", f"{each.memory_bandwidth / 1e9:.0f} GB/s"
        cells.append((each.name, memory, bandwidth, f"{peak / 1e12:.1f} TFLOP/s"))
    show_table(("device", "memory", "bandwidth", "peak bf16 or fp16"), cells, (1, 2, 3))


def _stack_table(entries: Iterable[Any]) -> None:
    from attrs import asdict

    cells = []
    for each in entries:
        overlaps: Mapping[str, Any] = asdict(each.training.overlap)
        hidden = [key for key, value in overlaps.items() if value]
        hidden += [f"pipeline ({', '.join(each.pipeline_overlap)})"] if each.pipeline_overlap else []
        cells.append((each.name, each.version, ", ".join(hidden) or "nothing", ", ".join(each.targets)))
    show_table(("stack", "version", "what overlaps", "targets"), cells)


def _descriptions(entries: Iterable[Any]) -> None:
    typer.echo(figures([(each.name or "", each.description) for each in entries], screen()))
