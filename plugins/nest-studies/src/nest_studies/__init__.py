"""Studies: a problem at every point of what varies (`nest sweep`), clusters for a budget (`nest recommend`), engines.

Belongs here: what solves many problems. Does not: how one is solved, and pages (`nest_page`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nest.hooks import hook

if TYPE_CHECKING:  # `nest --help` passes here.
    from nest.hooks.protocols import Engine


@hook
def nest_engines() -> list[Engine]:
    """Processes of this machine, which is the default, and Dask."""
    from nest_studies.engines.dask import Dask
    from nest_studies.engines.local import Local

    return [Local(), Dask()]


@hook
def nest_commands(app: Any) -> None:
    """`nest recommend` and `nest sweep`."""
    from nest_studies.commands.recommend import recommend
    from nest_studies.commands.sweep import sweep

    app.command("recommend")(recommend)
    app.command("sweep")(sweep)
