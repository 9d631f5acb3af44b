"""Options that several commands share."""

from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from nest.formulate.given import Changes


def _be_strict(asked: bool) -> bool:
    if asked:
        from nest.hooks.registry import registry

        registry().be_strict()
    return asked


STRICT_PLUGINS = typer.Option(
    False,
    "--strict-plugins",
    callback=_be_strict,
    help="Make a faulty plug-in an error (exit code 2) instead of going on without it.",
)
"""Takes effect as it is read, so that a command only has to declare it: `strict_plugins: bool = STRICT_PLUGINS`."""

TOKENS = typer.Option(
    None,
    "--tokens",
    metavar="N",
    help="Tokens of the whole training, in place of the problem's: its time, device hours and cost are told.",
)


def changes_of(*, target: str | None = None, tokens: str | None = None) -> "Changes":
    """The keys of a problem that options stand in place of."""
    from nest.files import read_value

    changes: dict[str, dict[str, Any]] = {}
    if target is not None:
        changes["search"] = {"target": target}
    if tokens is not None:
        changes["training"] = {"tokens": read_value(tokens)}
    return changes
