"""Networks of devices and switches: links, paths and rings as they are, and their reduction to levels."""

from nest.network.graph import LinkGraph
from nest.network.least import optimistic_level
from nest.network.linked import network_model
from nest.network.model import PathNetwork
from nest.network.paths import forwards, pairs
from nest.network.reduction import REFERENCE_MESSAGE, Reduced, Reduction, Stretch, reduce

__all__ = [
    "REFERENCE_MESSAGE",
    "LinkGraph",
    "PathNetwork",
    "Reduced",
    "Reduction",
    "Stretch",
    "forwards",
    "network_model",
    "optimistic_level",
    "pairs",
    "reduce",
]
