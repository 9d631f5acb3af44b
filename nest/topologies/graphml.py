"""GraphML files (http://graphml.graphdrawing.org), as networkx, yEd and Gephi write them."""

from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

from nest.errors import InputError
from nest.network.graph import LinkGraph, check_size
from nest.network.graph_spec import read_graph
from nest.topologies.reading.text import text_of


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

        text = text_of(source)
        if "<!ENTITY" in text:
            raise InputError("the file declares XML entities, which are not read.")
        check_size(0, text.count("<node"), text.count("<edge") // 2)
        try:
            graph = parse_graphml(text)
        except (NetworkXError, ParseError, KeyError, ValueError, TypeError, AttributeError, StopIteration) as error:
            reason = " ".join(str(error).split()).rstrip(".") or "it cannot be parsed"
            raise InputError(f"the file is not GraphML: {reason:.200}.") from None
        return read_graph(dict(node_link_data(graph, edges="edges")))
