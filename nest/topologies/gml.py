"""GML files (Himsolt, "GML: a portable graph file format", 1997), as networkx, igraph and Gephi write them."""

import re
from pathlib import Path
from typing import Any

from nest.errors import InputError
from nest.network.graph import LinkGraph, check_size
from nest.network.graph_spec import read_graph
from nest.topologies.reading.text import text_of

_NODE, _EDGE = re.compile(r"\bnode\s*\["), re.compile(r"\bedge\s*\[")
_LABEL = re.compile(r"\blabel\s+\"")


class GmlImporter:
    """Reads files whose name ends in `.gml`."""

    name = "gml"

    def accepts(self, source: Any) -> bool:
        """Whether `source` is the path of such a file."""
        return isinstance(source, Path) and source.suffix.lower() == ".gml"

    def load(self, source: Path) -> LinkGraph:
        """Its devices, switches and links; nodes by their labels, or by their numbers where not all have one.

        Raises:
            InputError: it is no GML, too large, or something in it cannot be.
        """
        from networkx import NetworkXError, node_link_data, parse_gml

        text = text_of(source)
        nodes = len(_NODE.findall(text))
        check_size(0, nodes, len(_EDGE.findall(text)) // 2)
        labelled = len(_LABEL.findall(text)) >= nodes
        try:
            graph = parse_gml(text, label="label" if labelled else "id")
        except (NetworkXError, KeyError, ValueError, TypeError, AttributeError, IndexError, RecursionError) as error:
            reason = " ".join(str(error).split()).rstrip(".") or "it cannot be parsed"
            raise InputError(f"the file is not GML: {reason:.200}.") from None
        return read_graph(dict(node_link_data(graph, edges="edges")))
