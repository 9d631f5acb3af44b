"""Networks of devices and switches: links, the best path of every pair, and their reduction to levels."""

from nest.network.graph import LinkGraph
from nest.network.paths import pairs
from nest.network.reduction import REFERENCE_MESSAGE, LevelMatrix, Reduced, Reduction, Stretch, level_matrix, reduce

__all__ = [
    "REFERENCE_MESSAGE",
    "LevelMatrix",
    "LinkGraph",
    "Reduced",
    "Reduction",
    "Stretch",
    "level_matrix",
    "pairs",
    "reduce",
]
