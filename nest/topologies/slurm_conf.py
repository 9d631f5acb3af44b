"""Slurm's `topology.conf` (man page topology.conf(5) of Slurm 26.11): topology/tree, topology/block, topology/ring."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from nest.errors import InputError
from nest.network.imported import Imported, PartOf
from nest.spec import LinkProfile
from nest.topologies.files import beginning, path_of, text_of
from nest.topologies.switched.slurm import Block, Ring, Switch, block, ring, tree

KEYS = {
    "switchname": ("nodes", "switches", "linkspeed"),
    "blockname": ("nodes",),
    "ringname": ("nodes",),
    "blocksizes": (),
}
"""What a line may begin with, and what may follow it; letters count alike large and small."""

WRITTEN = ("SwitchName", "BlockName", "RingName", "BlockSizes", "Nodes", "Switches", "LinkSpeed")

_KNOWN = re.compile(r"^[ \t]*(SwitchName|BlockName|BlockSizes|RingName)[ \t]*=", re.IGNORECASE | re.MULTILINE)
_PAIR = re.compile(r'\s*([A-Za-z0-9_.]+)\s*=\s*(?:"([^"]*)"|(\S+))(?=\s|$)')
_COMMENT = re.compile(r"(?<!\\)#.*")


class SlurmConfImporter:
    """Reads `topology.conf`; `topology.conf#NAME` stands for the hosts below one switch, or in one block or ring."""

    name = "slurm-conf"
    profiled = True

    def accepts(self, source: Any) -> bool:
        """Whether `source` is such a file, by its lines."""
        path = path_of(source)
        if path is None:
            return False
        return path.name.lower().endswith("topology.conf") or _KNOWN.search(beginning(source)) is not None

    def load(self, source: Any, profile: LinkProfile | None = None) -> Imported:
        """The network of its switches, blocks or rings; hosts in its order.

        Blocks beside switches are NVLink domains in the tree (CoreWeave's SUNK writes both into one file).

        Raises:
            InputError: a line cannot be read, or Slurm itself would not plan over it; the text names the line.
        """
        path, part = (source.path, source.name) if isinstance(source, PartOf) else (source, None)
        switches: list[Switch] = []
        blocks: list[Block] = []
        rings: list[Ring] = []
        sizes: list[int] = []
        for number, line in _lines(text_of(path)):
            pairs = _pairs(line, number)
            kind, name = next(iter(pairs.items()))
            nodes = pairs.get("nodes", "")
            if kind == "switchname":
                switches.append(Switch(name, pairs.get("switches", ""), nodes))
            elif kind == "blockname":
                blocks.append(Block(name, nodes))
            elif kind == "ringname":
                rings.append(Ring(name, nodes))
            else:
                sizes += _sizes(name, number)
        if switches:
            return tree(switches, blocks, part, profile)
        if blocks:
            return block(blocks, sizes, part, profile)
        if rings:
            return ring(rings, part, profile)
        raise InputError("the file describes no switches, no blocks and no rings: it has no line that names one.")


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with something in them, with the number of the first of those that a backslash joins."""
    begun, whole = 0, ""
    for number, written in enumerate(text.splitlines(), 1):
        line = _COMMENT.sub("", written).replace("\\#", "#").rstrip()
        begun = begun or number
        if line.endswith("\\"):
            whole += line[:-1]
            continue
        whole += line
        if whole.strip():
            yield begun, whole
        begun, whole = 0, ""
    if whole.strip():
        yield begun, whole


def _pairs(line: str, number: int) -> Mapping[str, str]:
    """The values of a line by their keys in small letters."""
    if re.match(r"\s*include\s", line, re.IGNORECASE):
        raise InputError(f"line {number} includes another file, which is not read; put its lines in its place.")
    found: dict[str, str] = {}
    place = 0
    line = line.rstrip()
    while place < len(line):
        match = _PAIR.match(line, place)
        if match is None:
            raise InputError(f"line {number}: {line[place:].strip()!r:.60} is not of the form `Key=value`.")
        key, value = match[1].lower(), match[2] if match[2] is not None else match[3]
        first = next(iter(found), key)
        if first not in KEYS or (found and key not in KEYS[first]):
            raise InputError(
                f"line {number} has the key {match[1]!r:.40}, which no line of its kind has.{_near(match[1])}"
            )
        if key in found:
            raise InputError(f"line {number} has the key {match[1]!r:.40} twice; keep one.")
        found[key] = value
        place = match.end()
    return found


def _near(key: str) -> str:
    near = get_close_matches(key, WRITTEN, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _sizes(written: str, number: int) -> list[int]:
    sizes = [each.strip() for each in written.split(",")]
    if not all(each.isascii() and each.isdecimal() and len(each) < 10 for each in sizes):
        raise InputError(f"line {number}: BlockSizes is {written!r:.60}; it takes numbers of hosts such as `4,8,16`.")
    return [int(each) for each in sizes]
