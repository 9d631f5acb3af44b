"""Options that several commands share."""

import typer


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
