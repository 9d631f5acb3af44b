"""Tori and meshes: grids of devices, neighbours linked."""

from typing import Any

from nest.network.graph import LinkGraph, grid
from nest.spec import MeshSpec, TorusSpec


class TorusImporter:
    """Reads `torus: {shape, wrap, bandwidth, latency}`."""

    name = "torus"

    def accepts(self, source: Any) -> bool:
        """Whether `source` is a torus."""
        return isinstance(source, TorusSpec)

    def load(self, source: TorusSpec) -> LinkGraph:
        """Its devices and links.

        Raises:
            InputError: it has too many devices, or fewer than two.
        """
        wrap = source.wrap * len(source.shape) if len(source.wrap) == 1 else source.wrap
        return grid(source.shape, wrap, source.bandwidth, source.latency)


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
