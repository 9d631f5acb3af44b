"""Graphs as networkx, igraph, yEd and Gephi write them: node-link JSON, GraphML, GML."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

from attrs import frozen

from nest.errors import InputError
from nest.network.graph import LinkGraph, check_size, read_graph
from nest_networks.files import text_of


class NodeLinkImporter:
    """Reads node-link data: `nodes`, and `edges` or `links`."""

    name = "node-link"

    def accepts(self, source: Any) -> bool:
        """Return whether `source` is a mapping with nodes, but no model of topograph or request to it."""
        others = {"provider", "switches", "blocks", "capacity_blocks"}
        return isinstance(source, Mapping) and "nodes" in source and not others & set(source)

    def load(self, source: Mapping[str, Any]) -> LinkGraph:
        """Its devices, switches and links.

        Raises:
            InputError: it is no such graph, or something in it cannot be.
        """
        return read_graph(source)


@frozen
class GraphFileImporter:
    """An importer of files that networkx reads.

    Attributes:
        name: how the names of such files end.
        kind: what they are called.
        parse: from the text of a file to a networkx graph.
    """

    name: str
    kind: str
    parse: Callable[[str], Any]

    def accepts(self, source: Any) -> bool:
        """Return whether `source` is the path of such a file."""
        return isinstance(source, Path) and source.suffix.lower() == f".{self.name}"

    def load(self, source: Path) -> LinkGraph:
        """Its devices, switches and links.

        Raises:
            InputError: it cannot be parsed, is too large, or something in it cannot be.
        """
        from networkx import NetworkXError

        broken = (NetworkXError, ParseError, AttributeError, LookupError, RecursionError, StopIteration, TypeError)
        try:
            graph = self.parse(text_of(source))
        except (*broken, ValueError) as error:
            reason = " ".join(str(error).split()).rstrip(".") or "it cannot be parsed"
            raise InputError(f"the file is not {self.kind}: {reason:.200}.") from None
        return LinkGraph.from_networkx(graph)


def _graphml(text: str) -> Any:
    from networkx import parse_graphml

    if "<!ENTITY" in text:
        raise InputError("the file declares XML entities, which are not read.")
    check_size(0, text.count("<node"), text.count("<edge") // 2)
    return parse_graphml(text)


_NODE, _EDGE = re.compile(r"\bnode\s*\["), re.compile(r"\bedge\s*\[")
_LABEL = re.compile(r"\blabel\s+\"")


def _gml(text: str) -> Any:
    """Nodes go by their labels, or by their numbers where not all have one."""
    from networkx import parse_gml

    nodes = len(_NODE.findall(text))
    check_size(0, nodes, len(_EDGE.findall(text)) // 2)
    return parse_gml(text, label="label" if len(_LABEL.findall(text)) >= nodes else "id")


graphml = GraphFileImporter("graphml", "GraphML", _graphml)
gml = GraphFileImporter("gml", "GML", _gml)
