"""Slurm's `topology.yaml` (man page topology.yaml(5) of Slurm 26.11): topologies, of which one is planned on."""

import re
from collections.abc import Sequence
from typing import Any

from attrs import field, frozen

from nest.errors import InputError
from nest.io import read_value, structure
from nest.network.imported import Imported, PartOf
from nest.spec import LinkProfile
from nest.topologies.files import beginning, path_of, text_of
from nest.topologies.switched.slurm import Block, Point, Region, Ring, Switch, block, ring, torus, tree

KINDS = ("tree", "block", "ring", "torus3d", "flat")
"""Of a topology; each has exactly one."""

_TOPOLOGY = re.compile(r"^\s*(-\s+)?[\"']?topology[\"']?\s*:", re.MULTILINE)
_KIND = re.compile(rf"^\s*(-\s+)?[\"']?({'|'.join(KINDS)})[\"']?\s*:", re.MULTILINE)
_LIST = re.compile(r"(?:\s*(?:#[^\n]*|---[^\n]*|%[^\n]*)?\n)*\s*-\s")
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
    topologies: tuple[_Topology, ...] = field(default=())


class SlurmYamlImporter:
    """Reads `topology.yaml`: its `cluster_default`, or the first; `topology.yaml#NAME` is the topology called NAME.

    `NAME/PART` is one switch, block, ring or torus of that topology.
    """

    name = "slurm-yaml"
    profiled = True

    def accepts(self, source: Any) -> bool:
        """Whether `source` is such a file: a list in YAML of topologies and their kinds."""
        path = path_of(source)
        if path is None or path.suffix.lower() not in (".yaml", ".yml", ".json"):
            return False
        text = beginning(source)
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
            told = " and ".join(chosen.kinds) or "none"
            raise InputError(
                f"topology {chosen.topology!r:.60} has {told} of the kinds {', '.join(KINDS)}; give it one."
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
            f"topology {chosen.topology!r:.60} is flat: it names no hosts, and says of none that it is nearer than "
            "others. Name another topology of the file behind its name (`topology.yaml#NAME`), or write `levels`."
        )


def _chosen(topologies: Sequence[_Topology], wanted: str | None) -> tuple[_Topology, str | None, list[str]]:
    """The topology that is meant, the part of it, and what is said of the choice.

    Slurm takes the first with `cluster_default` (topology.yaml(5)).
    """
    names = [each.topology for each in topologies]
    if not names:
        raise InputError("the file lists no topologies.")
    if wanted is not None:
        name, _, part = wanted.partition("/")
        if wanted in names:
            return topologies[names.index(wanted)], None, []
        if name not in names:
            raise InputError(f"there is no topology {name!r:.60} in the file; it has {', '.join(names)[:200]}.")
        return topologies[names.index(name)], part or None, []
    place = next((place for place, each in enumerate(topologies) if each.cluster_default), 0)
    if len(names) == 1:
        return topologies[0], None, []
    why = "the cluster's default" if topologies[place].cluster_default else "the first; none is the cluster's default"
    others = ", ".join(name for name in names if name != names[place])
    return topologies[place], None, [f"Of the topologies of the file {names[place]} is taken, {why}; not {others}."]


def _torus(
    toruses: Sequence[_Torus], part: str | None, profile: LinkProfile | None, assumptions: Sequence[str]
) -> Imported:
    names = [each.name for each in toruses]
    if part is not None and part not in names:
        raise InputError(f"there is no torus {part!r:.60} in the topology; it has {', '.join(names)[:200]}.")
    if not names or (part is None and len(names) > 1):
        told = f"several tori that no link joins: {', '.join(names)[:200]}" if names else "no torus"
        raise InputError(f"the topology has {told}. Name one behind the topology's name: `topology.yaml#NAME/TORUS`.")
    chosen = toruses[names.index(part) if part is not None else 0]
    if chosen.nodes and chosen.regions:
        raise InputError(f"torus {chosen.name!r:.60} has both nodes and regions; Slurm takes one of them.")
    regions = (Region(chosen.dims, chosen.nodes),) if chosen.nodes else chosen.regions
    return torus(chosen.dims, regions, profile, assumptions)
