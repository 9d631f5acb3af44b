"""XML files of NCCL (`NCCL_TOPO_FILE`, `NCCL_TOPO_DUMP_FILE`) and of RCCL, which is NCCL for AMD's GPUs."""

import re
from pathlib import Path
from typing import Any

from nest.errors import InputError
from nest.network.imported import Imported
from nest.spec import LinkProfile
from nest.topologies.machines.assembled import machine
from nest.topologies.machines.network import imported
from nest.topologies.machines.system import read_system
from nest.topologies.reading.text import beginning, text_of

_BEFORE = re.compile(r"<!--.*?-->|<\?.*?\?>", re.DOTALL)
_FIRST = re.compile(r"\s*<(system|graphs)(?=[\s>/])[^>]*>\s*(?:<(/?\w+)|$)")
_INSIDE = {"system": (None, "cpu", "/system"), "graphs": (None, "graph", "/graphs")}
"""What comes first in the two kinds of file."""


class NcclXmlImporter:
    """Reads the system they describe: processors, PCI devices, GPUs with their direct links, and network adapters."""

    name = "nccl-xml"
    profiled = True

    def accepts(self, source: Any) -> bool:
        """Whether `source` is the path of such a file, or of one with NCCL's graphs."""
        if not isinstance(source, Path):  # It has no parts.
            return False
        found = _FIRST.match(_BEFORE.sub("", beginning(source)))
        return found is not None and found[2] in _INSIDE[found[1]]

    def load(self, source: Path, profile: LinkProfile | None = None) -> Imported:
        """The machine.

        Args:
            source: path of the file.
            profile: the accelerator and its links where the file has none.

        Raises:
            InputError: it cannot be parsed, holds graphs and no system, or something in it cannot be.
        """
        from xml.etree.ElementTree import ParseError, fromstring

        text = text_of(source)
        if "<!DOCTYPE" in text or "<!ENTITY" in text:
            raise InputError("the file declares XML entities, which are not read.")
        try:
            root = fromstring(text)
        except (ParseError, ValueError) as error:
            raise InputError(f"the file is not well-formed XML: {error!s:.100}. Import all of it.") from None
        if root.tag == "graphs":
            raise InputError(
                "the file holds rings and trees that NCCL found (NCCL_GRAPH_FILE), not what joins the GPUs; import the "
                "file that NCCL_TOPO_DUMP_FILE writes."
            )
        assumptions: list[str] = []
        return imported(machine(read_system(root), profile, assumptions), profile, assumptions)
