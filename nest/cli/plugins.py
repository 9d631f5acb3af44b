"""`nest plugins`: distributions with plug-ins; `doctor` and `new` come with `nest-testing`."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

import typer

from nest.cli.options import JSON, STRICT_PLUGINS
from nest.cli.output import show_paragraph, to_json, warn_of_plugins
from nest.hooks.registry import registry

if TYPE_CHECKING:
    from nest.hooks.loader import PluginState

HANGING = 26  # Columns before names that continue below each other: beside those of the hooks.


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
    group.callback()(by_default)
    group.command("list")(list_plugins)
    for each in entry_points(group="nest.plugins_commands"):
        group.command(each.name)(each.load())
    app.add_typer(group, name="plugins", help="List, check and create plug-ins.")


def by_default(context: typer.Context, as_json: bool = JSON, strict_plugins: bool = STRICT_PLUGINS) -> None:
    """List plug-ins: distributions, versions, hooks and objects.

    Exit code 0: done; 2: bad input, or with --strict-plugins a plug-in error.
    """
    if context.invoked_subcommand is None:
        list_plugins(as_json)


def list_plugins(as_json: bool = JSON, strict_plugins: bool = STRICT_PLUGINS) -> None:
    """List plug-ins: distributions, versions, hooks and objects.

    Exit code 0: done; 2: bad input, or with --strict-plugins a plug-in error.
    """
    rows = registry().states()
    warn_of_plugins()
    if as_json:
        typer.echo(to_json({"plugins": [_plain(row) for row in rows]}))
        return
    for row in rows:
        show_paragraph(f"{_origin(row):26}  {row.state}", HANGING)
        for hook, names in row.hooks.items():
            show_paragraph(f"  {hook:24}  {', '.join(names)}".rstrip(), HANGING)


def _origin(row: PluginState) -> str:
    return f"{row.distribution} {row.version}".rstrip()


def _plain(row: PluginState) -> dict[str, Any]:
    return {
        "distribution": row.distribution,
        "version": row.version,
        "state": row.state,
        "hooks": {hook: list(names) for hook, names in row.hooks.items()},
        "set_aside": list(row.faults),
    }
