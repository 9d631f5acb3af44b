"""What commands take that read launch scripts and the like: files of frameworks, and what a script is called with."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
import typer.core

if TYPE_CHECKING:
    from nest.deployment import LaunchOptions

ARGUMENTS, FILES = "nest.arguments", "nest.files"
"""Where the arguments of a script, and the files of `--from`, are kept between the parser and the command."""

_VARIABLE = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)


class ScriptCommand(typer.core.TyperCommand):
    """Leaves what stands behind `--` to the script that is read; `--from NAME FILE` may be repeated."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments, without those of the script, and with the last `--from` alone."""
        if any(arg.partition("=")[0] in ("--from-megatron", "--from") for arg in args) and "--" in args:
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
    context: typer.Context, nodes: int | None, devices_per_node: int | None, part: str | None
) -> "LaunchOptions":
    """What is said of a launch beside its file: by options, and by the words behind `--`."""
    from nest.deployment import LaunchOptions

    behind = context.meta.get(ARGUMENTS, [])
    variables = dict(each.split("=", 1) for each in behind if _VARIABLE.fullmatch(each))
    arguments = tuple(each for each in behind if not _VARIABLE.fullmatch(each))
    return LaunchOptions(nodes, devices_per_node, part, arguments, variables)
