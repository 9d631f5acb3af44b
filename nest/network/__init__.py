"""Networks of devices and switches: links, paths and rings, and their reduction to levels.

Belongs here: links, routes, reduction to levels, shapes. Does not: formats of tools (`plugins/nest-networks`).

Loads on use: clusters given by levels need none of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nest.network.graph import REFERENCE_MESSAGE, LinkGraph
    from nest.network.least import optimistic_level
    from nest.network.linked import PathNetwork, network_model
    from nest.network.paths import forwards, pairs
    from nest.network.reduction import Reduced, Reduction, Stretch, reduce
else:
    _MODULES = {
        **dict.fromkeys(("REFERENCE_MESSAGE", "LinkGraph"), "graph"),
        "optimistic_level": "least",
        **dict.fromkeys(("PathNetwork", "network_model"), "linked"),
        **dict.fromkeys(("forwards", "pairs"), "paths"),
        **dict.fromkeys(("Reduced", "Reduction", "Stretch", "reduce"), "reduction"),
    }

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


__all__ = [
    "REFERENCE_MESSAGE", "LinkGraph", "PathNetwork", "Reduced", "Reduction", "Stretch", "forwards",
    "network_model", "optimistic_level", "pairs", "reduce",
]  # fmt: skip
