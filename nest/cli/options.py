"""Options shared by commands, also for launch scripts, and shell completion of names."""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
import typer.core

from nest.hooks.registry import registry
from nest.units import Count, Positions, Seconds, parse, parse_count

if TYPE_CHECKING:
    from nest.deployment import LaunchOptions
    from nest.formulate.problem import Changes


def _be_strict(strict: bool) -> bool:
    if strict:
        registry().be_strict()
    return strict


STRICT_PLUGINS = typer.Option(
    False, "--strict-plugins", callback=_be_strict, help="Stop on a plug-in error (exit code 2)."
)
"""Takes effect when parsed; a command only declares `strict_plugins: bool = STRICT_PLUGINS`."""

JSON = typer.Option(False, "--json", help="Print one JSON document and nothing else.")

PLAN = typer.Argument(..., metavar="PLAN", help="Plan file from `nest solve --output`.")

NODES = typer.Option(None, "--nodes", metavar="N", help="Number of nodes of the run.")

DEVICES_PER_NODE = typer.Option(None, "--devices-per-node", metavar="N", help="Ranks per node of the run.")

PART = typer.Option(None, "--part", metavar="PART", help="Predict only this part, `language-model`.")

RELEASE = typer.Option(None, "--for", metavar="RELEASE", help="With --from: release of the framework.")

MODEL = typer.Option(None, "--model", metavar="NAME|FILE", help="Model of the run: a name or a config.json.")

VOCABULARY = typer.Option(None, "--vocabulary", metavar="N", help="Vocabulary size of the run.")

TOKENS = typer.Option(None, "--tokens", metavar="N", help="Tokens of the training: prints its days and cost.")


def changes_of(*, target: str | None = None, tokens: str | None = None) -> "Changes":
    """Return the keys of a problem that options replace."""
    from nest.io import read_value

    changes: dict[str, dict[str, Any]] = {}
    if target is not None:
        changes["search"] = {"target": target}
    if tokens is not None:
        count(tokens, Count, "--tokens")
        changes["training"] = {"tokens": read_value(tokens)}
    return changes


def time_limit(limits: str, option: str = "--time-limit") -> Any:
    """Return an option like `--time-limit`: seconds, or a time with its unit; `limits` is its help."""
    return typer.Option(None, option, metavar="S", parser=seconds, help=limits)


def seconds(text: str) -> float:
    """Parse a time: seconds, or with a unit."""
    try:
        return float(text)  # Whatever number it is, the search says what limits can be.
    except ValueError:
        with _usage():
            return parse(text, Seconds)


def positions(text: str) -> int:
    """Parse positions of a sequence: `8192` or `8k`, at least 1."""
    return count(text, Positions)


def count(text: str, kind: object, option: str | None = None) -> int:
    """Parse a whole number of at least 1, of a kind with suffixes in `nest.units`.

    `option` names it in errors; None: the caller does.
    """
    with _usage(option):
        digits = re.fullmatch(r"\s*[0-9]+\s*", text, re.ASCII)
        if digits and len(digits[0]) > LONGEST:
            raise ValueError(f"is too large: {len(digits[0].strip())} digits")
        number = int(text) if digits else parse_count(text, kind)
        if number < 1:
            raise ValueError(f"must be at least 1, is {number}")
        return number


LONGEST = 99  # Most characters of a number; Python reads at most 4,300 digits.


@contextmanager
def _usage(option: str | None = None) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _completing(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


def _targets() -> Iterator[str]:
    """Yield values of `search.target`: exporters with limits of their framework."""
    yield from (name for name, each in registry().exporters().items() if hasattr(each, "limits"))
    yield "none"


def _in_catalogue(kind: str) -> Callable[[], Iterable[str]]:
    return lambda: getattr(import_module("nest.catalogue"), kind)()


complete_exporters = _completing(lambda: registry().exporters())
complete_planners = _completing(lambda: registry().planners())
complete_engines = _completing(lambda: registry().engines())
complete_targets = _completing(_targets)
complete_devices = _completing(_in_catalogue("devices"))
complete_clusters = _completing(_in_catalogue("clusters"))
complete_models = _completing(_in_catalogue("library_models"))


ARGUMENTS = "nest.arguments"
FILES = "nest.files"
"""Keys under which the arguments of a script and the files of `--from` pass from parser to command."""

_VARIABLE = r"(?s)[A-Za-z_]\w*=.*"


class ScriptCommand(typer.core.TyperCommand):
    """A command that leaves arguments after `--` to the script, and allows several `--from NAME FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the arguments without those of the script, with only the last `--from`."""
        script = self.name == "fix" or any(arg.partition("=")[0] in ("--from-megatron", "--from") for arg in args)
        if script and "--" in args:
            at = args.index("--")
            ctx.meta[ARGUMENTS] = args[at + 1 :]
            args = args[:at]
        ctx.meta[FILES] = []
        while args.count("--from") > 1 and len(args) > args.index("--from") + 2:
            at = args.index("--from")
            ctx.meta[FILES].append((args[at + 1], Path(args[at + 2])))
            args = args[:at] + args[at + 3 :]
        return super().parse_args(ctx, args)


def launch_options(
    context: typer.Context,
    nodes: int | None,
    devices_per_node: int | None,
    part: str | None,
    release: str | None = None,
) -> "LaunchOptions":
    """Return what is stated of a launch beside its file: by options, and after `--`."""
    from nest.deployment import LaunchOptions

    behind = context.meta.get(ARGUMENTS, [])
    variables = dict(each.split("=", 1) for each in behind if re.fullmatch(_VARIABLE, each))
    arguments = tuple(each for each in behind if not re.fullmatch(_VARIABLE, each))
    return LaunchOptions(nodes, devices_per_node, part, arguments, variables, release=release)
