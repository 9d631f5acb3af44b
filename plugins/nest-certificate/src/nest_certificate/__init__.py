"""Certificates: a proof of a plan's optimality that a short program checks (`nest certify`).

Belongs here: the instance in numbers, and rules for every case. Does not: pricing, searching.
"""

from typing import Any

from nest.hooks import hook


@hook
def nest_commands(app: Any) -> None:
    """`nest certify`."""
    from nest_certificate.commands import certify

    app.command("certify")(certify)
