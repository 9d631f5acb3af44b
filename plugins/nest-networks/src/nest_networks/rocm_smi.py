"""What `rocm-smi --showtopo` prints: weights, hops and kinds of the links between every two GPUs of a machine.

Matrices under a line `Weight between two GPUs` and so on, then `GPU[0] : (Topology) Numa Node: 0` (ROCm/rocm_smi_lib
python_smi_tools/rocm_smi.py, `showHwTopology`). A kind is XGMI or PCIE; of XGMI, two GPUs with a link of their own have
the smallest weight, 15 a hop (ROCm/rocm_smi_lib#108 has weights of PCI Express).
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nest.errors import InputError
from nest.network.imported import Imported
from nest.spec import LinkProfile
from nest_networks.files import beginning, text_of
from nest_networks.hosts.hardware import AMD, PRODUCTS, USUAL_XGMI, Fabric, infinity_fabric
from nest_networks.hosts.matrix import Connections, machine
from nest_networks.hosts.network import host_network

KINDS, WEIGHTS = "Link Type between two GPUs", "Weight between two GPUs"

_ROW = re.compile(r"^[ \t]*GPU(\d+)((?:[ \t]+\S+)+)[ \t]*$", re.MULTILINE)
_NODE = re.compile(r"GPU ?\[?(\d+)\]?\s*:\s*\(Topology\) Numa Node:\s*(-?\d+)")
_MODEL = re.compile(r"Card [Mm]odel:\s*(0x[0-9a-fA-F]{4})\b")
_ARCHITECTURE = re.compile(r"GFX Version:\s*(gfx\w+)")

ARCHITECTURES: Mapping[str, str] = {"mi300x": "gfx942"}
"""Of devices of the catalogue (rocm.docs.amd.com, GPU hardware specifications)."""


class RocmSmiImporter:
    """Reads the matrices of one machine's GPUs, whatever stands before and behind them."""

    name = "rocm-smi"
    profiled = True

    def accepts(self, source: Any) -> bool:
        """Whether `source` is the path of a file with kinds of links."""
        return KINDS in beginning(source)

    def load(self, source: Path, profile: LinkProfile | None = None) -> Imported:
        """The machine.

        Raises:
            InputError: the matrix cannot be read, or leaves out a connection.
        """
        text = text_of(source)
        notes: list[str] = []
        number = _MODEL.search(text)
        product, device = PRODUCTS.get((AMD, int(number[1], 16)), (None, None)) if number else (None, None)
        if product is not None and device is None:
            notes.append(f"the GPUs are {product}, which the catalogue does not have; the problem gives `device`.")
        given = (profile or LinkProfile()).device
        connections = _connections(text, _fabric(text, device or given, notes), notes)
        known = LinkProfile(device=device) if profile is None and device is not None else profile
        return host_network(machine(connections, known, notes), known, notes)


def _fabric(text: str, device: str | None, notes: list[str]) -> Fabric:
    said = _ARCHITECTURE.search(text)
    architecture = said[1] if said else ARCHITECTURES.get(device or "")
    if architecture is None and "XGMI" in text:
        notes.append(
            f"the file does not say how fast an Infinity Fabric link is; {USUAL_XGMI / 1e9:g} GB/s per direction are "
            "assumed, the lowest; name the device in a link profile, or add what `--showproductname` prints."
        )
    return infinity_fabric(architecture or "")


def _connections(text: str, fabric: Fabric, notes: list[str]) -> Connections:
    """The kinds of connection; XGMI of two GPUs over a third is what they would have without it.

    Raises:
        InputError: the matrix is cut off, contradicts itself, or has kinds that are not known.
    """
    kinds = _matrix(text, KINDS)
    weights = _matrix(text, WEIGHTS)
    count = len(kinds)
    nodes = {int(gpu): node for gpu, node in _NODE.findall(text)}
    joined = [(one, two) for two in range(count) for one in range(two) if kinds[one][two] == "XGMI"]
    heavy = {pair: int(weights[pair[0]][pair[1]]) for pair in joined if _weighed(weights, pair)}
    least = min(heavy.values(), default=0)
    found = {}
    for two in range(count):
        for one in range(two):
            kind = kinds[one][two]
            if kinds[two][one] != kind or kind not in ("XGMI", "PCIE"):
                raise InputError(
                    f"GPU{one} and GPU{two} are joined by {kind!r:.20} and {kinds[two][one]!r:.20}; it must be XGMI or "
                    "PCIE, both ways."
                )
            near = "NODE" if nodes.get(one) == nodes.get(two) else "SYS"
            found[one, two] = "NV1" if kind == "XGMI" and heavy.get((one, two), least) == least else near
    if joined:
        notes.append("the file does not say how many links join two GPUs; one is assumed, as between two MI300X.")
    return Connections(tuple(f"GPU{index}" for index in range(count)), found, fabric)


def _weighed(weights: list[list[str]], pair: tuple[int, int]) -> bool:
    return pair[1] < len(weights) and re.fullmatch(r"[0-9]{1,9}", weights[pair[0]][pair[1]]) is not None


def _matrix(text: str, title: str) -> list[list[str]]:
    """The cells under a title, row by row; empty: there is no such title.

    Raises:
        InputError: rows or cells are missing, or two matrices have the title.
    """
    parts = text.split(title)
    if len(parts) > 2:
        raise InputError(f"there are {len(parts) - 1} matrices `{title}`; import one machine at a time.")
    rows: list[list[str]] = []
    for match in _ROW.finditer(re.split(r"={6,}[^=\n]+={6,}", parts[-1])[0]) if len(parts) == 2 else ():
        cells = match[2].split()
        if cells[0].startswith("GPU"):  # The names of the columns.
            continue
        if int(match[1]) != len(rows):
            raise InputError(f"`{title}` has a row of GPU{match[1]} where that of GPU{len(rows)} should be.")
        rows.append(cells)
    if any(len(cells) != len(rows) for cells in rows) or (len(parts) == 2 and not rows):
        raise InputError(f"`{title}` must have a row and a column for each GPU; lines must not be wrapped.")
    return rows
