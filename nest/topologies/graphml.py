"""GraphML files (http://graphml.graphdrawing.org), as networkx, yEd and Gephi write them."""

from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

from nest.errors import InputError
from nest.network.graph import LinkGraph, check_size
from nest.network.graph_spec import read_graph

LARGEST_FILE = 64 * 2**20
"""Bytes; a larger file is refused unread."""


class GraphmlImporter:
    """Reads files whose name ends in `.graphml`."""

    name = "graphml"

    def accepts(self, source: Any) -> bool:
        """Whether `source` is the path of such a file."""
        return isinstance(source, Path) and source.suffix.lower() == ".graphml"

    def load(self, source: Path) -> LinkGraph:
        """Its devices, switches and links.

        Raises:
            InputError: it is no GraphML, too large, or something in it cannot be.
        """
        from networkx import NetworkXError, node_link_data, parse_graphml

        try:
            if source.stat().st_size > LARGEST_FILE:
                raise InputError(f"the file has more than the {LARGEST_FILE // 2**20} MiB nest reads.")
            text = source.read_text(encoding="utf-8-sig")
        except (OSError, ValueError) as error:
            raise InputError(f"the file cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8'}.") from None
        if "<!ENTITY" in text:
            raise InputError("the file declares XML entities, which are not read.")
        check_size(0, text.count("<node"), text.count("<edge") // 2)
        try:
            graph = parse_graphml(text)
        except (NetworkXError, ParseError, KeyError, ValueError, TypeError, AttributeError, StopIteration) as error:
            reason = " ".join(str(error).split()).rstrip(".") or "it cannot be parsed"
            raise InputError(f"the file is not GraphML: {reason:.200}.") from None
        return read_graph(dict(node_link_data(graph, edges="edges")))
