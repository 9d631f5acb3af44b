"""`nest plugins`: the distributions that bring plug-ins, and what became of them."""

from typing import TYPE_CHECKING, Any

import typer

from nest.cli import plugins_doctor, plugins_new
from nest.cli.options import STRICT_PLUGINS
from nest.cli.output import screen, to_json, warn

if TYPE_CHECKING:
    from nest.hooks.loader import PluginState

JSON = typer.Option(False, "--json", help="Print one JSON document and nothing else.")

HANGING = 26
"""Columns after which names go on below each other: beside those of the hooks."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
    group.callback()(by_default)
    group.command("list")(list_plugins)
    plugins_doctor.register(group)
    plugins_new.register(group)
    app.add_typer(group, name="plugins", help="List, check and begin plug-ins.")


def by_default(context: typer.Context, as_json: bool = JSON, strict_plugins: bool = STRICT_PLUGINS) -> None:
    """List the distributions that bring plug-ins: versions, hooks, registered objects, state.

    Exit code 0: done; 2: bad input, or with --strict-plugins a plug-in error.
    """
    if context.invoked_subcommand is None:
        list_plugins(as_json)


def list_plugins(as_json: bool = JSON, strict_plugins: bool = STRICT_PLUGINS) -> None:
    """List the distributions that bring plug-ins: versions, hooks, registered objects, state.

    Exit code 0: done; 2: bad input, or with --strict-plugins a plug-in error.
    """
    from nest.hooks.registry import registry
    from nest.report.paragraph import paragraph

    rows = registry().states()
    warn(registry().warnings)
    if as_json:
        typer.echo(to_json({"plugins": [_plain(row) for row in rows]}))
    else:
        typer.echo("\n".join(paragraph(line, screen(), HANGING) for row in rows for line in _lines(row)))


def _plain(row: "PluginState") -> dict[str, Any]:
    return {
        "distribution": row.distribution,
        "version": row.version,
        "state": row.state,
        "hooks": {hook: list(names) for hook, names in row.hooks.items()},
        "set_aside": list(row.faults),
    }


def _lines(row: "PluginState") -> list[str]:
    origin = f"{row.distribution} {row.version}".rstrip()
    return [
        f"{origin:26}  {row.state}",
        *(f"  {hook:24}  {', '.join(names)}".rstrip() for hook, names in row.hooks.items()),
    ]
