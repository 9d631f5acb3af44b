"""`nest plugins`: what other distributions bring."""

import typer

from nest.cli import plugins_doctor, plugins_new


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    plugins_doctor.register(group)
    plugins_new.register(group)
    app.add_typer(group, name="plugins", help="Check plug-ins and begin new ones.")
