"""Networks of devices and switches: links, the best path of every pair, and their reduction to levels."""

from nest.network.graph import LinkGraph
from nest.network.level_matrix import LevelMatrix, level_matrix
from nest.network.paths import pairs
from nest.network.reduction import REFERENCE_MESSAGE, Distortion, Reduced, Reduction, reduce

__all__ = [
    "REFERENCE_MESSAGE",
    "Distortion",
    "LevelMatrix",
    "LinkGraph",
    "Reduced",
    "Reduction",
    "level_matrix",
    "pairs",
    "reduce",
]
