"""Commands that plug-ins bring: those that clash with another's are left out."""

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from nest.hooks.registry import Registry


def add_plugin_commands(app: typer.Typer, known: "Registry") -> frozenset[str]:
    """Add the commands of plug-ins to `app` and return their names; a plug-in that names one as another is refused.

    Each plug-in fills a command line of its own: what it does to that can harm no other command.
    """
    taken: dict[str, str] = {}
    brought: set[str] = set()
    for plugin, own, names in known.commands(typer.Typer, _names):
        taken = taken or dict.fromkeys(_names(app), "nest")
        clash = next((name for name in names if name in taken), None)
        if clash is not None:
            known.refuse(plugin, f"the command {clash!r} it adds is one of {taken[clash]} already")
            continue
        taken.update(dict.fromkeys(names, plugin.origin))
        brought.update(names)
        app.registered_commands += own.registered_commands
        app.registered_groups += own.registered_groups
    return frozenset(brought)


def plugins_first(arguments: list[str]) -> list[str]:
    """The command line with each `--plugin FILE.py` in front of the command; the files join `NEST_PLUGINS`.

    Plug-ins add commands, so that they are found before the command line is read.
    """
    from nest.hooks.discovery import add_named

    files: list[str] = []
    others: list[str] = []
    waiting = iter(arguments)
    for each in waiting:
        if each == "--":
            others += [each, *waiting]
        elif each == "--plugin":
            files.append(next(waiting, ""))
        elif each.startswith("--plugin="):
            files.append(each.partition("=")[2])
        else:
            others.append(each)
    add_named(files)
    return [*(f"--plugin={file}" for file in files), *others]


def _names(app: typer.Typer) -> tuple[str, ...]:
    """Names of the commands and groups of `app`; made as they will be called, so that mistakes show."""
    return tuple(typer.main.get_group(app).commands)
