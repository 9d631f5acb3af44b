"""The command line: one file per command or group of commands."""

import gc
import os
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from inspect import getdoc
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer
import typer.core

from nest import __version__
from nest.cli import raise_again, stop_again

if TYPE_CHECKING:
    from nest.hooks.registry import Registry

COMMANDS = (
    "init", "solve", "evaluate", "fix", "check", "verify", "simulate", "explain", "frontier", "compare", "export",
    "models", "devices", "clusters", "stacks", "strategies", "schema",
)  # fmt: skip
"""Commands in the order of `nest --help`, three of them of `nest-whatif`; other bundled ones follow."""

OUTSIDE = ("simulate", "explain", "frontier", "compare", "topology")  # Of them, those of a bundled distribution.

GROUPS = ("topology", "plugins")  # Groups of commands, shown below.

MODULES = {name: name for name in (*COMMANDS, *GROUPS) if name not in OUTSIDE}
MODULES |= dict.fromkeys(("devices", "clusters", "stacks"), "catalogue")
"""Modules of this package by command; each has a function of its name, or `register(app)`."""

BUNDLED = "nest.commands"
"""Group of the entry points that name modules of bundled commands, whose hook `nest_commands` adds them."""

WIDEST_HELP = 80  # Most columns of help, margin included: typer's default.

COLLECTED_AFTER = (500_000, 20, 50)
"""New objects between two garbage collections, and how often older ones are visited. Candidates live as long as the
process: of `nest explain` for Llama 3 70B on 128 H100, collection takes 14 % of the time with Python's defaults, 6 %
with 50,000, 2 % with 250,000, and 1 % with 9 % more memory with these; 1,000 layers on 2**20 devices take no more. A
solve of it then collects nothing; with 250,000 it did once, a tenth of the time (2026-11-28)."""


class _Commands(typer.core.TyperGroup):
    """The commands of nest, whose modules are imported when called or described, and those of plug-ins."""

    def list_commands(self, ctx: Any) -> list[str]:
        brought = {name: hasattr(self.get_command(ctx, name), "commands") for name in _bundled()}
        brought |= {name: hasattr(each, "commands") for name, each in self.commands.items() if name not in MODULES}
        groups = [name for name, is_group in brought.items() if is_group]
        core = [name for name in COMMANDS if name in MODULES or name in brought]
        return [
            *core,
            *(name for name in brought if name not in (*core, *groups)),
            *GROUPS,
            *(name for name in groups if name not in GROUPS),
        ]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in MODULES:
            self.commands.update(_commands_of(MODULES[cmd_name]))
        elif cmd_name in _bundled():
            self.commands.update(_commands_of(_bundled()[cmd_name]))
        elif cmd_name not in self.commands:  # What is meant may be any of them.
            for module in (*MODULES.values(), *_bundled().values()):
                self.commands.update(_commands_of(module))
        return super().get_command(ctx, cmd_name)


def _bundled() -> Mapping[str, str]:
    from nest.hooks.bundled import bundled_entries

    return bundled_entries(BUNDLED)


@cache
def _commands_of(module: str) -> Mapping[str, Any]:
    """Return the commands of a module of this package or of a bundled distribution, by name."""
    own = typer.Typer(rich_markup_mode=None)
    if module in _bundled().values():
        import_module(module).nest_commands(own)
    elif hasattr(module_read := import_module(f"nest.cli.{module}"), "register"):
        module_read.register(own)
    else:
        own.command(module)(getattr(module_read, module))
    _list_whole_sentences(own)
    return typer.main.get_group(own).commands


app = typer.Typer(
    name="nest",
    cls=_Commands,
    help="Find the simplest training plan within 1 % of the fastest, and prove it.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(print_version: bool) -> None:
    if print_version:
        typer.echo(f"nest {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
    plugin: list[Path] = typer.Option(
        [], "--plugin", metavar="FILE.py", help="Load the plug-in in this file; repeatable."
    ),
) -> None:
    """Options before the command."""
    if context.obj is not None:
        context.obj(context.invoked_subcommand)


def _list_whole_sentences(group: typer.Typer) -> None:
    """Let lists of commands show whole first sentences: typer cuts them after 45 characters."""
    for command in group.registered_commands:
        first = " ".join((getdoc(command.callback) or "").split("\n\n")[0].split())
        command.short_help = first.partition(". ")[0].removesuffix(".") + "."
    for each in group.registered_groups:
        if each.typer_instance is not None:
            _list_whole_sentences(each.typer_instance)


def main() -> None:
    """Entry point of the `nest` command: user errors end in plain sentences and exit code 2."""
    _open_closed_streams()
    gc.set_threshold(*COLLECTED_AFTER)
    # NumPy reads it when it is imported, which is below. Its products here are small: threads of OpenBLAS wait for work
    # in loops, a fifth of the CPU time of solving for Llama 3 70B on 128 devices and none of the time it takes, and let
    # the last digits of sums depend on how many processors there are.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Kept results are in the user's cache folder unless set otherwise (`nest.whatif.disk_cache`).
    os.environ.setdefault("NEST_CACHE", "default")
    import warnings

    from nest.api import PluginWarning
    from nest.cli.output import run, warn_once
    from nest.errors import NotKept

    warnings.simplefilter("ignore", PluginWarning)  # Commands print what the registry says themselves.
    show = warnings.showwarning

    def in_a_line(message: Warning | str, category: type[Warning], *place: Any, **options: Any) -> None:
        if category is NotKept:
            warn_once((str(message),))
        else:
            show(message, category, *place, **options)

    warnings.showwarning = in_a_line
    code = run(_call)
    stop_again()
    # What is left ends with the process. Python would look through all of it for garbage once more and free it piece
    # by piece: a quarter of the CPU time of solving a small problem, 6 % of `nest explain` of the example above.
    gc.freeze()
    sys.exit(code)


def _open_closed_streams() -> None:
    """Open closed standard streams on the null device; the next opened files would take their numbers."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            stream = open(os.devnull, "r" if name == "stdin" else "w")  # noqa: PTH123, SIM115
            setattr(sys, name, stream)


def _call() -> None:
    raise_again()
    from nest.cli.output import INTERRUPTED, separated
    from nest.hooks.registry import registry

    with separated() as together:
        arguments = _plugins_first(sys.argv[1:])
        registry().be_strict(False)  # Until an option says otherwise.
        brought = _add_plugin_commands(registry())
        try:
            # What a command of a plug-in prints is a result, whichever way it does.
            code = app(
                args=arguments,
                obj=lambda command: together() if command in brought else None,
                terminal_width=_help_width(),
                prog_name="nest",
                standalone_mode=False,
            )
        except _UsageError as error:
            _fail_usage(error)
        if code == INTERRUPTED:  # Typer's own code for Ctrl-C.
            raise KeyboardInterrupt
        sys.exit(code if isinstance(code, int) else 0)


_UsageError: Any = typer.BadParameter.__base__
"""The error that typer raises for unreadable command lines, from click or from typer's copy of it."""


def _fail_usage(error: Any) -> NoReturn:
    """Report a mistake in the command line, or a missing one, like other errors."""
    from nest.cli.output import fail

    if not error.args or type(error).__name__ == "NoArgsIsHelpError":
        error.show()
    else:
        message = error.format_message().rstrip(".")
        path = error.ctx.command_path if error.ctx is not None else "nest"
        fail(f"{message[:1].lower()}{message[1:]}; see `{path} --help`.")
    sys.exit(error.exit_code)


def _help_width() -> int | None:
    """Return columns of help on a terminal: typer takes at least 48, and asks another stream if streams differ."""
    from nest.cli.output import width_of

    width = width_of(sys.stdout)
    return None if width is None else max(min(width, WIDEST_HELP) - 2, 1)


def _plugins_first(arguments: list[str]) -> list[str]:
    """Return the command line with each `--plugin FILE.py` before the command; the files join `NEST_PLUGINS`.

    Plug-ins add commands, so they are found before the command line is read.
    """
    from nest.hooks.loader import add_named

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


def _add_plugin_commands(known: "Registry") -> frozenset[str]:
    """Add the commands of plug-ins and return their names; a name already taken is refused.

    Each plug-in fills a separate command line, so that it can harm no other command.
    """
    taken = dict.fromkeys((*MODULES, *_bundled()), "nest")
    brought: set[str] = set()
    for plugin, own, names in known.commands(typer.Typer, _names):
        clash = next((name for name in names if name in taken), None)
        if clash is not None:
            known.refuse(plugin, f"its command {clash!r} is already a command of {taken[clash]}")
            continue
        taken.update(dict.fromkeys(names, plugin.origin))
        brought.update(names)
        app.registered_commands += own.registered_commands
        app.registered_groups += own.registered_groups
    return frozenset(brought)


def _names(commands: typer.Typer) -> tuple[str, ...]:
    """Return names of commands and groups, built as for a call, so that mistakes show."""
    return tuple(typer.main.get_group(commands).commands)
