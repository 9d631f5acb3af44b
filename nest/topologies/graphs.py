"""Graphs as networkx, igraph, yEd and Gephi write them: node-link JSON, GraphML, GML."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

from nest.errors import InputError
from nest.network.graph import LinkGraph, check_size
from nest.network.graph_spec import read_graph
from nest.topologies.files import text_of


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
        from networkx import parse_graphml

        text = text_of(source)
        if "<!ENTITY" in text:
            raise InputError("the file declares XML entities, which are not read.")
        check_size(0, text.count("<node"), text.count("<edge") // 2)
        return _parsed("GraphML", lambda: parse_graphml(text))


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
        from networkx import parse_gml

        text = text_of(source)
        nodes = len(_NODE.findall(text))
        check_size(0, nodes, len(_EDGE.findall(text)) // 2)
        labelled = len(_LABEL.findall(text)) >= nodes
        return _parsed("GML", lambda: parse_gml(text, label="label" if labelled else "id"))


# What networkx's parsers raise of broken files.
_BROKEN = (ParseError, AttributeError, LookupError, RecursionError, StopIteration, TypeError, ValueError)


def _parsed(kind: str, parse: Callable[[], Any]) -> LinkGraph:
    from networkx import NetworkXError

    try:
        graph = parse()
    except (NetworkXError, *_BROKEN) as error:
        reason = " ".join(str(error).split()).rstrip(".") or "it cannot be parsed"
        raise InputError(f"the file is not {kind}: {reason:.200}.") from None
    return LinkGraph.from_networkx(graph)
