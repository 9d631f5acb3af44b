"""Options that several commands share."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from nest.formulate.problem import Changes


def _be_strict(asked: bool) -> bool:
    if asked:
        from nest.hooks.registry import registry

        registry().be_strict()
    return asked


STRICT_PLUGINS = typer.Option(
    False,
    "--strict-plugins",
    callback=_be_strict,
    help="Make a plug-in error fatal (exit code 2) instead of going on without the plug-in.",
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
    from nest.io import read_value

    changes: dict[str, dict[str, Any]] = {}
    if target is not None:
        changes["search"] = {"target": target}
    if tokens is not None:
        changes["training"] = {"tokens": read_value(tokens)}
    return changes


def time_limit(told: str) -> Any:
    """The option `--time-limit`: seconds, or a time with its unit.

    Args:
        told: what it limits.
    """
    return typer.Option(None, "--time-limit", metavar="S", parser=_seconds, help=f"{told} Seconds, or as in 5min.")


def _seconds(text: str) -> float:
    from nest.units import Seconds, parse

    try:
        return float(text)  # Whatever number it is, the search says what limits can be.
    except ValueError:
        with _usage():
            return parse(text, Seconds)


def positions(text: str) -> int:
    """Positions of a sequence from the command line: `8192` or `8k`, at least 1."""
    from nest.units import Positions

    return count(text, Positions)


def count(text: str, kind: object, option: str | None = None) -> int:
    """A whole number of at least 1 from the command line, of a kind that `nest.units.COUNTS` has suffixes for.

    Args:
        text: what is written.
        kind: `Count` or `Positions`.
        option: what it is written behind, for errors; None: whoever reads the option knows.
    """
    from nest.units import parse_count

    with _usage(option):
        found = int(text) if text.strip().isdecimal() else parse_count(text, kind)
        if found < 1:
            raise ValueError(f"must be at least 1, is {found}")
        return found


@contextmanager
def _usage(option: str | None = None) -> Iterator[None]:
    """Tell what is wrong with an option's value as typer does."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
