"""Tori, as the inter-chip interconnect of TPU v4 (Jouppi et al., arXiv 2304.01433, section 2)."""

from typing import Any

from nest.network.graph import LinkGraph
from nest.network.grid import grid
from nest.spec import TorusSpec


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
