"""Slurm's `topology.conf` and `topology.yaml` (man pages topology.conf(5) and topology.yaml(5) of Slurm 26.11)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from attrs import frozen

from nest.errors import InputError
from nest.io import read_value, structure
from nest.network.imported import Imported, PartOf
from nest.spec import LinkProfile
from nest_networks.files import beginning, host_names, path_of, text_of
from nest_networks.switched.profiles import DOMAIN_PROFILE, USUAL
from nest_networks.switched.slurm import Block, Point, Region, Ring, Switch, block, layers_of, ring, torus, tree

KEYS = {
    "switchname": ("nodes", "switches", "linkspeed", "level"),
    "blockname": ("nodes", "blockindex", "blocksize"),
    "aggregatedblock": ("nodes", "blockindex", "blocksize"),
    "ringname": ("nodes",),
    "blocksizes": (),
}
"""First and further keys of a line, in any case; `level` and keys after a block are of `scontrol show topology`
(scontrol(1); plugins/topology/block/block_record.c)."""

RACKS = "ClusterUUID"
"""In comments above the blocks that Azure's `azslurm topology` writes of NVLink domains (Azure/cyclecloud-slurm)."""

WRITTEN = ("SwitchName", "BlockName", "RingName", "BlockSizes", "Nodes", "Switches", "LinkSpeed")

_KNOWN = re.compile(
    r"^[ \t]*(SwitchName|BlockName|AggregatedBlock|BlockSizes|RingName)[ \t]*=", re.IGNORECASE | re.MULTILINE
)
_PAIR = re.compile(r'\s*([A-Za-z0-9_.]+)\s*=\s*(?:"([^"]*)"|(\S+))(?=\s|$)')
_COMMENT = re.compile(r"(?<!\\)#.*")


class SlurmConfImporter:
    """Reads `topology.conf` and what `scontrol show topology` prints.

    `topology.conf#NAME` stands for the hosts below one switch, or in one block or ring.
    """

    name = "slurm-conf"
    profiled = True

    def accepts(self, source: Any) -> bool:
        """Return whether `source` is such a file, by its lines."""
        path = path_of(source)
        if path is None:
            return False
        return path.name.lower().endswith("topology.conf") or _KNOWN.search(beginning(path)) is not None

    def load(self, source: Any, profile: LinkProfile | None = None) -> Imported:
        """The network of its switches, blocks or rings; hosts in its order.

        Blocks beside switches are NVLink domains in the tree (CoreWeave's SUNK writes both into one file).

        Raises:
            InputError: a line cannot be read, or Slurm itself would not plan over it; the text names the line.
        """
        path, part = (source.path, source.name) if isinstance(source, PartOf) else (source, None)
        switches, blocks, rings, sizes = self._read(path)
        if switches:
            return tree(switches, blocks, part, profile)
        if blocks:
            racks = RACKS in beginning(path)
            return block(blocks, sizes, part, profile, usual=DOMAIN_PROFILE if racks else USUAL)
        if rings:
            return ring(rings, part, profile)
        raise InputError("the file describes no switches, no blocks and no rings: it has no line that names one.")

    def layers(self, path: Path) -> dict[str, tuple[str, ...]]:
        """The switches above each host, the nearest first, of a file with switches or blocks.

        Raises:
            InputError: it cannot be read, or has neither.
        """
        switches, blocks, _, _ = self._read(path)
        if switches:
            return layers_of(switches)
        if blocks:
            return {name: (each.block,) for each in blocks for name in host_names(each.nodes)}
        raise InputError(f"{path.name} beside the file has no switches and no blocks, which would say where hosts are.")

    def _read(self, path: Path) -> tuple[list[Switch], list[Block], list[Ring], list[int]]:
        """Switches, blocks, rings and the sizes of groups of blocks."""
        switches: list[Switch] = []
        blocks: list[Block] = []
        rings: list[Ring] = []
        sizes: list[int] = []
        for number, line in _lines(text_of(path)):
            pairs = _pairs(line, number)
            kind, name = next(iter(pairs.items()))
            nodes = pairs.get("nodes", "")
            if kind == "switchname":
                below = pairs.get("switches", "")
                if "level" in pairs and below:  # scontrol lists the nodes of the switches below, too.
                    nodes = ""
                if bool(below) == bool(nodes) and "level" not in pairs:
                    has = "both nodes and switches" if nodes else "neither nodes nor switches"
                    raise InputError(f"line {number}: switch {name!r:.60} has {has}; Slurm takes one of them.")
                switches.append(Switch(name, below, nodes))
            elif kind == "blockname":
                blocks.append(Block(name, nodes))
                sizes[:1] = _sizes(pairs["blocksize"], number) if "blocksize" in pairs else sizes[:1]
            elif kind == "aggregatedblock":
                size = _sizes(pairs.get("blocksize", ""), number)
                sizes += [each for each in size if each not in sizes]
            elif kind == "ringname":
                rings.append(Ring(name, nodes))
            else:
                sizes += _sizes(name, number)
        return switches, blocks, rings, sizes


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that are not empty, with their numbers; lines that a backslash joins have the first one's."""
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
    pairs: dict[str, str] = {}
    place = 0
    line = line.rstrip()
    while place < len(line):
        match = _PAIR.match(line, place)
        if match is None:
            raise InputError(f"line {number}: {line[place:].strip()!r:.60} is not of the form `Key=value`.")
        key, value = match[1].lower(), match[2] if match[2] is not None else match[3]
        first = next(iter(pairs), key)
        if first not in KEYS or (pairs and key not in KEYS[first]):
            raise InputError(
                f"line {number} has the key {match[1]!r:.40}, which no line of its kind has.{_near(match[1])}"
            )
        if key in pairs:
            raise InputError(f"line {number} has the key {match[1]!r:.40} twice; keep one.")
        pairs[key] = value
        place = match.end()
    return pairs


def _near(key: str) -> str:
    near = get_close_matches(key, WRITTEN, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _sizes(written: str, number: int) -> list[int]:
    sizes = [each.strip() for each in written.split(",")]
    if not all(each.isascii() and each.isdecimal() and len(each) < 10 for each in sizes):
        raise InputError(f"line {number}: BlockSizes is {written!r:.60}; it takes numbers of hosts such as `4,8,16`.")
    return [int(each) for each in sizes]


KINDS = ("tree", "block", "ring", "torus3d", "flat")
"""Of a topology; each has exactly one."""

_BEFORE = r"(?:^|[{,])[ \t]*(?:-[ \t]+)?\{?[ \t]*[\"']?"
_TOPOLOGY = re.compile(rf"{_BEFORE}topology[\"']?\s*:", re.MULTILINE)
_KIND = re.compile(rf"{_BEFORE}({'|'.join(KINDS)})[\"']?\s*:", re.MULTILINE)
_LIST = re.compile(r"(?:[^\S\n]*(?:#[^\n]*|---[^\n]*|%[^\n]*)?\n)*[^\S\n]*-\s")
"""Comments and marks of a document, then the first item of a list."""


@frozen
class _Tree:
    switches: tuple[Switch, ...] = ()


@frozen
class _Blocks:
    blocks: tuple[Block, ...] = ()
    block_sizes: tuple[int, ...] = ()


@frozen
class _Rings:
    rings: tuple[Ring, ...] = ()


@frozen
class _Torus:
    name: str
    dims: Point
    nodes: str = ""
    regions: tuple[Region, ...] = ()
    placements: tuple[dict[str, Any], ...] = ()


@frozen
class _Toruses:
    toruses: tuple[_Torus, ...] = ()


@frozen
class _Topology:
    topology: str
    cluster_default: bool = False
    tree: _Tree | None = None
    block: _Blocks | None = None
    ring: _Rings | None = None
    torus3d: _Toruses | None = None
    flat: bool | dict[str, Any] | None = None

    @property
    def kinds(self) -> list[str]:
        return [kind for kind in KINDS if getattr(self, kind) not in (None, False)]


@frozen
class _File:
    topologies: tuple[_Topology, ...] = ()


class SlurmYamlImporter:
    """Reads `topology.yaml`: its `cluster_default`, or the first; `topology.yaml#NAME` is the topology called NAME.

    `NAME/PART` is one switch, block, ring or torus of that topology.
    """

    name = "slurm-yaml"
    profiled = True

    def accepts(self, source: Any) -> bool:
        """Return whether `source` is such a file: a list in YAML of topologies and their kinds."""
        path = path_of(source)
        if path is None:
            return False
        text = beginning(path)
        return bool(_LIST.match(text) and _TOPOLOGY.search(text) and _KIND.search(text))

    def load(self, source: Any, profile: LinkProfile | None = None) -> Imported:
        """The network of one topology; hosts in its order.

        Raises:
            InputError: it cannot be read, or Slurm itself would not plan over it.
        """
        path, wanted = (source.path, source.name) if isinstance(source, PartOf) else (source, None)
        content = read_value(text_of(path))
        topologies = structure({"topologies": content}, _File).topologies
        chosen, part, assumptions = _chosen(topologies, wanted)
        if len(chosen.kinds) != 1:
            kinds = " and ".join(chosen.kinds) or "none"
            raise InputError(
                f"topology {chosen.topology!r:.60} has {kinds} of the kinds {', '.join(KINDS)}; give it one."
            )
        if chosen.tree is not None:
            return tree(chosen.tree.switches, (), part, profile, assumptions)
        if chosen.block is not None:
            return block(chosen.block.blocks, chosen.block.block_sizes, part, profile, assumptions)
        if chosen.ring is not None:
            return ring(chosen.ring.rings, part, profile, assumptions)
        if chosen.torus3d is not None:
            return _torus(chosen.torus3d.toruses, part, profile, assumptions)
        raise InputError(
            f"topology {chosen.topology!r:.60} is flat and has no hosts. Name another topology "
            "(`topology.yaml#NAME`), or write `levels`."
        )


def _chosen(topologies: Sequence[_Topology], wanted: str | None) -> tuple[_Topology, str | None, list[str]]:
    """The topology that is meant, the part of it, and what is said of the choice.

    Slurm takes the first with `cluster_default` (topology.yaml(5)).
    """
    names = [each.topology for each in topologies]
    if not names:
        raise InputError("the file lists no topologies.")
    if wanted is not None:
        whole = [each for each in names if wanted == each or wanted.startswith(f"{each}/")]
        name = max(whole, key=len, default=wanted.partition("/")[0])
        if name not in names:
            raise InputError(f"there is no topology {name!r:.60} in the file; it has {', '.join(names)[:200]}.")
        return topologies[names.index(name)], wanted[len(name) + 1 :] or None, []
    place = next((place for place, each in enumerate(topologies) if each.cluster_default), 0)
    if len(names) == 1:
        return topologies[0], None, []
    why = "the cluster's default" if topologies[place].cluster_default else "the first; none is the cluster's default"
    others = ", ".join(name for name in names if name != names[place])
    return topologies[place], None, [f"Using topology {names[place]}, {why}; not {others}."]


def _torus(
    toruses: Sequence[_Torus], part: str | None, profile: LinkProfile | None, assumptions: Sequence[str]
) -> Imported:
    names = [each.name for each in toruses]
    if part is not None and part not in names:
        raise InputError(f"there is no torus {part!r:.60} in the topology; it has {', '.join(names)[:200]}.")
    if not names or (part is None and len(names) > 1):
        held = f"several tori that no link joins: {', '.join(names)[:200]}" if names else "no torus"
        raise InputError(f"the topology has {held}. Name one behind the topology's name: `topology.yaml#NAME/TORUS`.")
    chosen = toruses[names.index(part) if part is not None else 0]
    if chosen.nodes and chosen.regions:
        raise InputError(f"torus {chosen.name!r:.60} has both nodes and regions; Slurm takes one of them.")
    regions = (Region(chosen.dims, chosen.nodes),) if chosen.nodes else chosen.regions
    return torus(chosen.dims, regions, profile, assumptions)
