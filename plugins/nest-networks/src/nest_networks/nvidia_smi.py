"""Output of `nvidia-smi topo -m`: the kind of connection of every two GPUs of a machine.

The legend it prints: NV# is a bonded set of # NVLinks; PIX leads over at most one PCI Express bridge, PXB over several,
PHB over a host bridge, NODE over the interconnect of host bridges in one NUMA node, SYS between NUMA nodes.
"""

import re
from pathlib import Path
from typing import Any

from nest.errors import InputError
from nest.network.imported import Imported
from nest.spec import LinkProfile
from nest_networks.files import all_of, text_of
from nest_networks.hosts.matrix import Connections, machine
from nest_networks.hosts.network import host_network

_HEADER = re.compile(r"^\W*GPU\d+(\s+\S+)*$")
_ROW = re.compile(r"^\W*(GPU\d+)\s+((?:X|NV\d+|PIX|PXB|PHB|NODE|SYS)\b.*)$")
_CELLS = re.compile(r"^\W*(GPU\d+)\s+((?!GPU|CPU|NIC)[A-Z]+\d*\b.*)$")
"""A row with cells of any kind, so that errors can name unknown ones."""

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""Terminal codes of colours and underlines (ECMA-48, control sequences)."""

_GPU = re.compile(r"GPU\d+")


class NvidiaSmiImporter:
    """Reads the matrix of connections of one machine's GPUs, whatever stands before and behind it."""

    name = "nvidia-smi"
    profiled = True

    def accepts(self, source: Any) -> bool:
        """Return whether `source` is the path of a file with such a matrix."""
        return _header(_lines(all_of(source)), rows=True) is not None

    def load(self, source: Path, profile: LinkProfile | None = None) -> Imported:
        """The machine.

        Raises:
            InputError: the matrix cannot be read, or leaves out a connection.
        """
        connections = _connections(_lines(text_of(source)))
        assumptions: list[str] = []
        return host_network(machine(connections, profile, assumptions), profile, assumptions)


def _lines(text: str) -> list[str]:
    return _ESCAPE.sub("", text).splitlines()


def _header(lines: list[str], *, rows: bool = False) -> int | None:
    """The first line of column names with a row below it; without `rows`, else the first of all."""
    found = [at for at, line in enumerate(lines) if "GPU" in line and _HEADER.match(line) and not _ROW.match(line)]
    followed = (at for at in found if any(_ROW.match(line) for line in lines[at + 1 : at + 3]))
    return next(followed, found[0] if found and not rows else None)


def _connections(lines: list[str]) -> Connections:
    """The matrix of the GPUs, from either triangle.

    Cells are separated by spaces or tabs; those of NICs stand behind those of GPUs and are not needed.
    """
    header = _header(lines)
    if header is None:
        raise InputError("the file has no line of column names such as `GPU0 GPU1`.")
    names: list[str] = []
    for name in re.findall(r"\S+", lines[header].lstrip("`| ")):
        if not _GPU.fullmatch(name):
            break
        names.append(name)
    if len(set(names)) < len(names):
        raise InputError(f"line {header + 1} names a GPU twice; import one matrix at a time.")
    kinds: dict[tuple[int, int], str] = {}
    seen: set[str] = set()
    for number, line in enumerate(lines[header + 1 :], header + 2):
        if seen and _HEADER.match(line) and not _ROW.match(line):
            break  # Another matrix begins.
        row = _CELLS.match(line)
        if row is None or row[1] not in names:
            continue
        if row[1] in seen:
            raise InputError(f"line {number}: {row[1]} has two rows; import one matrix at a time.")
        seen.add(row[1])
        _read(row[1], row[2].split(), names, number, kinds)
    return Connections(tuple(names), kinds)


def _read(name: str, cells: list[str], names: list[str], number: int, kinds: dict[tuple[int, int], str]) -> None:
    """Add the cells of one row."""
    if len(cells) < len(names):
        raise InputError(
            f"line {number}: {name} has {len(cells)} cells for {len(names)} GPUs; lines must not be wrapped."
        )
    one = names.index(name)
    for two, cell in enumerate(cells[: len(names)]):
        if (cell == "X") != (one == two):
            raise InputError(f"line {number}: the connection of {name} and {names[two]} is {cell!r:.20}.")
        if one == two:
            continue
        pair = (min(one, two), max(one, two))
        known = kinds.setdefault(pair, cell)
        if known != cell:
            raise InputError(
                f"line {number}: {name} and {names[two]} are joined by {cell!r:.20}, in an earlier line by "
                f"{known!r:.20}."
            )
