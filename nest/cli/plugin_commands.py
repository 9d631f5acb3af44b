"""Commands that plug-ins bring: those that clash with another's are left out."""

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from nest.hooks.registry import Registry


def add_plugin_commands(app: typer.Typer, known: "Registry") -> None:
    """Add the commands of plug-ins to `app`; a plug-in that names one as another does is refused.

    Each plug-in fills a command line of its own: what it does to that can harm no other command.
    """
    taken = dict.fromkeys(_names(app), "nest")
    for plugin, own in known.commands(typer.Typer):
        clash = next((name for name in _names(own) if name in taken), None)
        if clash is not None:
            known.refuse(plugin, f"the command {clash!r} it adds is one of {taken[clash]} already")
            continue
        taken.update(dict.fromkeys(_names(own), plugin.origin))
        app.registered_commands += own.registered_commands
        app.registered_groups += own.registered_groups


def _names(app: typer.Typer) -> list[str]:
    """Names of the commands and groups of `app`, as typer makes them."""
    commands = [each.name or _dashed(each.callback) for each in app.registered_commands]
    return [*commands, *(str(each.name) for each in app.registered_groups)]


def _dashed(callback: object) -> str:
    return str(getattr(callback, "__name__", "")).replace("_", "-")
