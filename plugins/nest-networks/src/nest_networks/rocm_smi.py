"""Output of `rocm-smi --showtopo` and `amd-smi topology`: weights, hops and kinds of links of a machine's GPUs.

Matrices under a line `Weight between two GPUs` and so on, then `GPU[0] : (Topology) Numa Node: 0` (ROCm/rocm_smi_lib
python_smi_tools/rocm_smi.py, `showHwTopology`). A kind is XGMI or PCIE; of XGMI, two GPUs with a link of their own have
the smallest weight, 15 a hop (ROCm/rocm_smi_lib#108 has weights of PCI Express). `amd-smi topology` prints tables of
the same by PCI address (ROCm/amdsmi amdsmi_cli/amdsmi_commands.py, `topology`); its weights may all be 0.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve

from nest.errors import InputError
from nest.network.graph import components
from nest.network.imported import Imported
from nest.spec import LinkProfile
from nest_networks.files import all_of, text_of
from nest_networks.hosts.hardware import AMD, ARCHITECTURES, PRODUCTS, USUAL_XGMI, Fabric, infinity_fabric
from nest_networks.hosts.matrix import Connections, machine
from nest_networks.hosts.network import host_network

KINDS, WEIGHTS = "Link Type between two GPUs", "Weight between two GPUs"

_ROW = re.compile(r"^[ \t]*GPU(\d+)((?:[ \t]+\S+)+)[ \t]*$", re.MULTILINE)
_NODE = re.compile(r"GPU ?\[?(\d+)\]?\s*:\s*\(Topology\) Numa Node:\s*(-?\d+)")
_MODEL = re.compile(r"Card [Mm]odel:\s*(0x[0-9a-fA-F]{4})\b")
_ARCHITECTURE = re.compile(r"GFX Version:\s*(gfx\w+)")


INSIDE = 13
"""Weight between two partitions of one card; between those of two cards it is 41 (Linux, drivers/gpu/drm/amd/amdkfd
kfd_crat.h, `KFD_CRAT_INTRA_SOCKET_WEIGHT`)."""

MOST_CARDS = 8
"""Cards that Infinity Fabric joins in a machine: more devices are partitions of them (AMD, MI300X data sheet)."""


class RocmSmiImporter:
    """Reads the matrices of one machine's GPUs, whatever stands before and behind them."""

    name = "rocm-smi"
    profiled = True

    def accepts(self, source: Any) -> bool:
        """Return whether `source` is the path of a file with kinds of links."""
        return KINDS in all_of(source)

    def load(self, source: Path, profile: LinkProfile | None = None) -> Imported:
        """The machine.

        Raises:
            InputError: the matrix cannot be read, or leaves out a connection.
        """
        text = text_of(source)
        kinds, weights = _matrix(text, KINDS), _matrix(text, WEIGHTS)
        return _machine(text, kinds, weights, {int(gpu): node for gpu, node in _NODE.findall(text)}, profile)


class AmdSmiImporter:
    """Reads the tables that `amd-smi topology` prints of one machine's GPUs."""

    name = "amd-smi"
    profiled = True

    def accepts(self, source: Any) -> bool:
        """Return whether `source` is the path of a file with such a table of kinds of links."""
        return _TABLE.search(all_of(source)) is not None

    def load(self, source: Path, profile: LinkProfile | None = None) -> Imported:
        """The machine.

        Raises:
            InputError: a table cannot be read, or leaves out a connection.
        """
        text = text_of(source)
        names, kinds = _table(text, "LINK TYPE TABLE")
        weights = _table(text, "WEIGHT TABLE")[1]
        if not any(cell.isdecimal() and int(cell) for row in weights for cell in row):
            weights = _table(text, "HOPS TABLE")[1]
        cards = [name.rpartition(".")[0] for name in names]
        return _machine(text, kinds, weights, {}, profile, cards if len(set(cards)) < len(cards) else [])


_TABLE = re.compile(r"^[ \t]*LINK TYPE TABLE:[ \t]*\n(?:[ \t]+[0-9a-f:.]+)+[ \t]*\n", re.MULTILINE)
_ADDRESS = re.compile(r"[ \t]*([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])((?:[ \t]+\S+)*)[ \t]*", re.IGNORECASE)


def _table(text: str, title: str) -> tuple[list[str], list[list[str]]]:
    """PCI addresses and cells of the table under a title; both empty: there is none.

    Raises:
        InputError: rows or cells are missing.
    """
    _, found, rest = text.partition(f"{title}:")
    names, rows = list[str](), list[list[str]]()
    for line in rest.splitlines()[2:] if found else ():
        row = _ADDRESS.fullmatch(line)
        if row is None:
            break
        names.append(row[1])
        rows.append(row[2].split())
    if any(len(row) != len(rows) for row in rows) or (found and not rows):
        raise InputError(f"`{title}` must have a row and a column for each GPU; lines must not be wrapped.")
    return names, rows


def _machine(
    text: str,
    kinds: list[list[str]],
    weights: list[list[str]],
    nodes: Mapping[int, str],
    profile: LinkProfile | None,
    cards: Sequence[object] = (),
) -> Imported:
    """The machine with such kinds and weights of links; `cards`: the card of each GPU, if GPUs are partitions."""
    notes: list[str] = []
    number = _MODEL.search(text)
    product, device = PRODUCTS.get((AMD, int(number[1], 16)), (None, None)) if number else (None, None)
    if product is not None and device is None:
        notes.append(f"the GPUs are {product}, unknown to the catalogue; give `device` in the problem.")
    given = (profile or LinkProfile()).device
    cards = cards or _cards(kinds, weights)
    parts = len(kinds) // len(set(cards)) if cards else 1
    profiled = profile is not None and profile.host is not None
    fabric = _fabric(text, device or given, [] if profiled else notes)
    connections = _connections(kinds, weights, nodes, fabric, notes)
    if parts > 1:
        count = len(set(cards))
        share = f"each is planned with a {parts}th of its card's links to the {count - 1} others"
        notes.append(f"the {len(kinds)} GPUs are partitions of {count} cards: {share}; `device` must be a partition's.")
        connections = evolve(connections, cards=count)
        device = None
    known = LinkProfile(device=device) if profile is None and device is not None else profile
    return host_network(machine(connections, known, notes), known, notes)


def _cards(kinds: list[list[str]], weights: list[list[str]]) -> list[int]:
    """The card that each GPU is a partition of; empty: they are whole.

    Of partitions that weights do not tell apart there are equally many on each of 8 or 4 cards.
    """
    count = len(kinds)
    pairs = [(one, two) for two in range(count) for one in range(two)]
    inside = [pair for pair in pairs if _weighed(weights, pair) and int(weights[pair[0]][pair[1]]) == INSIDE]
    if inside and len(inside) < len(pairs):
        return [
            card
            for _, card in sorted(
                (gpu, card) for card, group in enumerate(components(range(count), inside)) for gpu in group
            )
        ]
    alike = len({weights[one][two] for one, two in pairs if _weighed(weights, (one, two))}) <= 1
    if count <= MOST_CARDS or not alike or any(kinds[one][two] != "XGMI" for one, two in pairs):
        return []
    cards = next((each for each in (MOST_CARDS, MOST_CARDS // 2) if count % each == 0), count)
    return [gpu * cards // count for gpu in range(count)]


def _fabric(text: str, device: str | None, notes: list[str]) -> Fabric:
    said = _ARCHITECTURE.search(text)
    architecture = said[1] if said else ARCHITECTURES.get(device or "")
    if architecture is None and "XGMI" in text:
        notes.append(
            f"the file has no Infinity Fabric speed; assuming {USUAL_XGMI / 1e9:g} GB/s per direction, the "
            "lowest. Name the device in a link profile, or add the output of `--showproductname`."
        )
    return infinity_fabric(architecture or "")


def _connections(
    kinds: list[list[str]], weights: list[list[str]], nodes: Mapping[int, str], fabric: Fabric, notes: list[str]
) -> Connections:
    """The kinds of connection; XGMI of two GPUs over a third is what they would have without it.

    Raises:
        InputError: the matrix is cut off, contradicts itself, or has kinds that are not known.
    """
    count = len(kinds)
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
        notes.append("the file has no number of links between two GPUs; assuming one, as on MI300X.")
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
            raise InputError(f"`{title}` has a row of GPU{match[1]} where GPU{len(rows)} should be.")
        rows.append(cells)
    if any(len(cells) != len(rows) for cells in rows) or (len(parts) == 2 and not rows):
        raise InputError(f"`{title}` must have a row and a column for each GPU; lines must not be wrapped.")
    return rows
