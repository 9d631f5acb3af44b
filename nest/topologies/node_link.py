"""Graphs as networkx writes them in JSON (`networkx.node_link_data`)."""

from collections.abc import Mapping
from typing import Any

from nest.network.graph import LinkGraph
from nest.network.graph_spec import read_graph


class NodeLinkImporter:
    """Reads node-link data: `nodes`, and `edges` or `links`."""

    name = "node-link"

    def accepts(self, source: Any) -> bool:
        """Whether `source` is a mapping with nodes, and no model of or request to topograph, which may have some."""
        return isinstance(source, Mapping) and "nodes" in source and not {"provider", "switches"} & set(source)

    def load(self, source: Mapping[str, Any]) -> LinkGraph:
        """Its devices, switches and links.

        Raises:
            InputError: it is no such graph, or something in it cannot be.
        """
        return read_graph(source)
