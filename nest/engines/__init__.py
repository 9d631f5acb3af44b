"""Built-in engines, which run the points of a sweep."""

from nest.hooks.protocols import Engine
from nest.hooks.spec import hook


@hook
def nest_engines() -> list[Engine]:
    """Processes of this machine, which is the default, and Dask."""
    from nest.engines.dask import Dask
    from nest.engines.local import Local

    return [Local(), Dask()]
