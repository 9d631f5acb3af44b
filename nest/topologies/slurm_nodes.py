"""Slurm's `slurm.conf` and what `scontrol show nodes` prints: hosts with their accelerators, by `Gres` and `Feature`.

slurm.conf(5), "NODE CONFIGURATION": `Feature` (also `Features`), `Gres=gpu:TYPE:COUNT`, `NodeName=DEFAULT`;
scontrol(1), `show nodes`: `ActiveFeatures`, `AvailableFeatures`. The switches are those of the `topology.conf` beside.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nest.errors import InputError
from nest.network.imported import Imported
from nest.spec import LinkProfile
from nest.topologies.files import beginning, host_names, text_of
from nest.topologies.slurm_files import SlurmConfImporter
from nest.topologies.switched.network import switched_network
from nest.topologies.switched.pools import pools_of_hosts
from nest.topologies.switched.profiles import product_device
from nest.topologies.switched.tree import LocatedHost, left_out, tree_of_layers

SWITCHES = "topology.conf"
FEATURES = ("activefeatures", "features", "feature", "availablefeatures")
"""Keys of a node's features, the first that it has."""

_NODE = re.compile(r"^[ \t]*NodeName=", re.IGNORECASE | re.MULTILINE)
_PAIR = re.compile(r'([A-Za-z]+)=(?:"([^"]*)"|(\S*))')
_ACCELERATORS = re.compile(r"gpu(?::(?P<type>[A-Za-z][^:,(]*))?(?::(?P<count>\d{1,4}))?(?:\([^)]*\))?", re.IGNORECASE)


class SlurmNodesImporter:
    """Reads `slurm.conf`, or what `scontrol show nodes` prints; hosts of several kinds become pools."""

    name = "slurm-nodes"
    profiled = True

    def accepts(self, source: Any) -> bool:
        """Whether `source` is a file with lines of nodes."""
        return isinstance(source, Path) and _NODE.search(beginning(source)) is not None

    def load(self, source: Path, profile: LinkProfile | None = None) -> Imported:
        """Its hosts with accelerators, under the switches of the `topology.conf` beside it.

        Raises:
            InputError: no node has accelerators, or none of those that do is under a switch; hosts of one kind have
                different numbers of them, or the catalogue does not know them.
        """
        kinds: dict[str | None, dict[str, LocatedHost]] = {}
        bare = []
        for name, keys in _nodes(text_of(source)):
            told = _accelerators(keys.get("gres", ""))
            if told is None:
                bare.append(name)
                continue
            product, count = told
            features = next((keys[each] for each in FEATURES if keys.get(each)), "")
            device = product_device(f"{product} {features}".strip(), profile) if product or features else None
            kinds.setdefault(device, {})[name] = LocatedHost(name, devices=count)
        if not kinds:
            raise InputError("no node has accelerators: give `Gres=gpu:TYPE:COUNT` of those that do.")
        switches = source.parent / SWITCHES
        notes = [left_out(bare, "which have no `Gres` of accelerators")] if bare else []
        layers: Mapping[str, tuple[str, ...]] = {}
        if switches.is_file():
            layers = SlurmConfImporter().layers(switches)
            notes.append(f"The switches are those of the {SWITCHES} beside the file.")
            lost = [name for own in kinds.values() for name in own if name not in layers]
            if lost:
                notes.append(left_out(lost, f"which {SWITCHES} does not have"))
        placed = {
            device: [LocatedHost(name, layers.get(name, ()), devices=each.devices) for name, each in own.items()]
            for device, own in kinds.items()
        }
        if layers:
            placed = {device: [host for host in own if host.layers] for device, own in placed.items()}
        placed = {device: own for device, own in placed.items() if own}
        if not placed:
            raise InputError(
                f"nodes have accelerators, and the {SWITCHES} beside the file has none of them; put that of the same "
                "cluster there, or none."
            )
        if len(placed) > 1:
            if None in placed:
                raise InputError(
                    f"node {placed[None][0].name!r:.60} does not say what accelerators it has, and others do; give "
                    "`Gres=gpu:TYPE:COUNT` or a Feature that names them."
                )
            return pools_of_hosts({str(device): own for device, own in placed.items()}, profile, assumptions=notes)
        ((device, own),) = placed.items()
        tree, sentences = tree_of_layers(own)
        return switched_network(tree, profile, device=device, assumptions=(*notes, *sentences))


def _nodes(text: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Every node with its keys in small letters; a record begins with `NodeName`, and may go over several lines."""
    usual: dict[str, str] = {}
    records = _NODE.split("\n".join(line.partition("#")[0] for line in text.replace("\\\n", " ").splitlines()))
    for record in records[1:]:
        lines = record.splitlines()
        # Of slurm.conf a line is a node; scontrol goes on in lines that are indented.
        whole = [lines[0]]
        for line in lines[1:]:
            if not line.startswith((" ", "\t")):
                break
            whole.append(line)
        names, _, rest = " ".join(whole).partition(" ")
        keys = {
            key.lower(): quoted or plain for key, quoted, plain in _PAIR.findall(rest) if (quoted or plain) != "(null)"
        }
        if names.strip('"').upper() == "DEFAULT":
            usual |= keys
            continue
        for name in host_names(names.strip('"')):
            yield name, {**usual, **keys}


def _accelerators(gres: str) -> tuple[str, int] | None:
    """What the accelerators of a node are called (empty: nobody says) and how many there are; None: it has none."""
    for part in re.split(r",(?![^(]*\))", gres):
        match = _ACCELERATORS.fullmatch(part.strip())
        if match is not None:
            count = int(match["count"] or 1)
            return (match["type"] or "", count) if count else None
    return None
