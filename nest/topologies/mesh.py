"""Meshes: grids of devices, neighbours linked."""

from typing import Any

from nest.network.graph import LinkGraph
from nest.network.grid import grid
from nest.spec import MeshSpec


class MeshImporter:
    """Reads `mesh: {shape, bandwidth, latency}`."""

    name = "mesh"

    def accepts(self, source: Any) -> bool:
        """Whether `source` is a mesh."""
        return isinstance(source, MeshSpec)

    def load(self, source: MeshSpec) -> LinkGraph:
        """Its devices and links.

        Raises:
            InputError: it has too many devices, or fewer than two.
        """
        return grid(source.shape, [False] * len(source.shape), source.bandwidth, source.latency)
