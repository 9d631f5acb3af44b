"""Slurm's `slurm.conf`, what `scontrol show nodes` and what `sinfo` print: hosts with their accelerators and states.

slurm.conf(5), "NODE CONFIGURATION": `Feature` (also `Features`), `Gres=gpu:TYPE:COUNT`, `NodeName=DEFAULT`;
scontrol(1), `show nodes`: `ActiveFeatures`, `AvailableFeatures`. States: `State` of both, slurm.conf(5), "DOWN NODE
CONFIGURATION", and sinfo(1), "NODE STATE CODES". The switches are those of the `topology.conf` beside.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nest.errors import InputError
from nest.network.imported import Imported
from nest.spec import LinkProfile
from nest_networks.files import beginning, host_names, text_of
from nest_networks.slurm_files import SlurmConfImporter
from nest_networks.switched.network import switched_network
from nest_networks.switched.pools import pools_of_hosts
from nest_networks.switched.profiles import is_slice, product_device
from nest_networks.switched.tree import LocatedHost, left_out, tree_of_layers

SWITCHES = "topology.conf"
FEATURES = ("activefeatures", "features", "feature", "availablefeatures")
"""Keys of a node's features, the first that it has."""

OUT = frozenset({
    "DOWN", "DRAIN", "DRAINED", "DRAINING", "ERROR", "FAIL", "FAILING", "FUTURE", "INVAL", "INVALID_REG", "MAINT",
    "NOT_RESPONDING", "NO_RESPOND", "NO_RESP", "RESERVED", "RESV", "DRNG", "FAILG", "FUTR", "ERR", "REBOOT_ISSUED",
})  # fmt: skip
"""States in which a node takes no job, in full or as `sinfo` shortens them (src/common/slurm_protocol_defs.c)."""

POWER = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POW_DN"})
"""States of nodes without power."""

_SPACED = re.compile(r"(?<=\w)[ \t]+=[ \t]*")
_INCLUDE = re.compile(r"^[ \t]*Include[ \t]+\S", re.IGNORECASE | re.MULTILINE)
_DOWN = re.compile(r'^[ \t]*DownNodes=(?:"([^"]*)"|(\S*))', re.IGNORECASE | re.MULTILINE)
_NODE = re.compile(r"^[ \t]*NodeName[ \t]*=", re.IGNORECASE | re.MULTILINE)
_PAIR = re.compile(r'([A-Za-z]+)=(?:"([^"]*)"|(\S*))')
_ACCELERATORS = re.compile(r"gpu(?::(?P<type>[A-Za-z][^:,(]*))?(?::(?P<count>\d{1,4}))?(?:\([^)]*\))?", re.IGNORECASE)


class SlurmNodesImporter:
    """Reads `slurm.conf`, or what `scontrol show nodes` prints; hosts of several kinds become pools."""

    name = "slurm-nodes"
    profiled = True

    def accepts(self, source: Any) -> bool:
        """Return whether `source` is a file with lines of nodes."""
        return isinstance(source, Path) and _NODE.search(beginning(source)) is not None

    def load(self, source: Path, profile: LinkProfile | None = None) -> Imported:
        """Its hosts with accelerators, under the switches of the `topology.conf` beside it.

        Raises:
            InputError: no node has accelerators, or none of those that do is under a switch; hosts of one kind have
                different numbers of them, or the catalogue does not know them.
        """
        text = _SPACED.sub("=", text_of(source))
        down = {name for quoted, plain in _DOWN.findall(text) for name in host_names(quoted or plain)}
        nodes: dict[str, Mapping[str, str]] = {}
        for name, keys in _nodes(text):
            if name in nodes:
                raise InputError(f"node {name!r:.60} is described twice; Slurm takes one description of each.")
            nodes[name] = {"gres": "", **keys, **({"state": "DOWN"} if name in down else {})}
        notes = []
        if _INCLUDE.search(text):
            notes.append("Ignoring the files of `Include` and their nodes.")
        return _network(source, nodes, profile, notes)


class SinfoImporter:
    """Reads what `sinfo` prints, whatever its columns, of which it needs STATE and NODELIST or HOSTNAMES."""

    name = "sinfo"
    profiled = True

    def accepts(self, source: Any) -> bool:
        """Return whether `source` is a file with such a line of column names."""
        return isinstance(source, Path) and any(map(_columns, beginning(source).splitlines()))

    def load(self, source: Path, profile: LinkProfile | None = None) -> Imported:
        """Its hosts, each once, under the switches of the `topology.conf` beside it.

        Raises:
            InputError: a line cannot be read, or as of `scontrol show nodes`.
        """
        columns, nodes = dict[str, int](), dict[str, dict[str, str]]()
        for number, line in enumerate(text_of(source).splitlines(), 1):
            cells = line.split()
            if not columns or not cells:
                columns = columns or _columns(line)
                continue
            if len(cells) <= max(columns.values()):
                raise InputError(f"line {number} has {len(cells)} cells, fewer than the column names above; print all.")
            keys = {key: cells[place] for key, place in columns.items()}
            for name in host_names(keys.pop("name")):
                known = nodes.setdefault(name, keys)
                nodes[name] = keys if _state(known["state"]) is None else known
        return _network(source, nodes, profile, [])


def _columns(line: str) -> dict[str, int]:
    """The places of the columns that are read, by what they hold; empty: the line is no line of their names."""
    words = {"NODELIST": "name", "HOSTNAMES": "name", "GRES": "gres", "FEATURES": "features"}
    words |= {"AVAIL_FEATURES": "features", "ACTIVE_FEATURES": "activefeatures", "FEATURES_ACT": "activefeatures"}
    words |= dict.fromkeys(("STATE", "STATELONG", "STATECOMPACT", "STATECOMPLETE"), "state")
    found = {words[word]: place for place, word in enumerate(line.split()) if word in words}
    return found if {"name", "state"} <= set(found) else {}


def _network(
    source: Path, nodes: Mapping[str, Mapping[str, str]], profile: LinkProfile | None, notes: list[str]
) -> Imported:
    """The network of nodes by their keys; those without `gres` have what the profile says."""
    kinds: dict[str | None, dict[str, LocatedHost]] = {}
    left: dict[str, list[str]] = {}
    for name, keys in nodes.items():
        told = _accelerators(keys.get("gres", ""))
        why = _why_not(told, keys.get("state", ""), "gres" in keys)
        if why is not None:
            left.setdefault(why, []).append(name)
            continue
        product, count = told[0] if told else ("", None)
        features = next((keys[each] for each in FEATURES if keys.get(each, "(null)") != "(null)"), "")
        device = product_device(f"{product} {features}".strip(), profile) if product or (told and features) else None
        kinds.setdefault(device, {})[name] = LocatedHost(name, devices=count)
    notes = [*(left_out(names, why) for why, names in left.items()), *notes]
    if not kinds:
        if set(left) <= {BARE}:
            raise InputError("no node has accelerators: give `Gres=gpu:TYPE:COUNT` of those that do.")
        raise InputError(f"no node with accelerators takes jobs. {' '.join(notes[:3])}")
    switches = source.parent / SWITCHES
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
                f"node {placed[None][0].name!r:.60} names no accelerators, but others do; give "
                "`Gres=gpu:TYPE:COUNT` or a Feature."
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
        lines = record.split("\n")
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


BARE = "which have no `Gres` of accelerators"


def _accelerators(gres: str) -> tuple[tuple[str, int], ...]:
    """Names of a node's accelerators (empty: unknown), and number of each."""
    counts: dict[str, int] = {}
    for part in re.split(r",(?![^(]*\))", gres):
        match = _ACCELERATORS.fullmatch(part.strip())
        if match is not None:
            kind = match["type"] or ""
            counts[kind] = counts.get(kind, 0) + int(match["count"] or 1)
    return tuple((kind, count) for kind, count in counts.items() if count)


def _state(state: str) -> str | None:
    """Why a node in such a state takes no job, as the end of a sentence; None: it does.

    `state`: words and flags such as `IDLE+DRAIN`, `DOWN*` (does not respond), `drng` or `idle$` (maintenance). Slurm
    starts nodes of clouds, and what `sinfo` marks with `~`, for a job.
    """
    words = re.split(r"[^A-Z_]+", state.upper())
    out = [word for word in words if word in OUT or (word in POWER and "CLOUD" not in words)]
    out += [word for mark, word in (("*", "NOT_RESPONDING"), ("$", "MAINT")) if mark in state and word not in out]
    return f"whose state is {' '.join(out)}" if out else None


def _why_not(told: tuple[tuple[str, int], ...], state: str, said: bool) -> str | None:
    """Why a node is not planned with, as the end of a sentence; None: it is.

    `said`: whether the file says what accelerators nodes have.
    """
    if said and not told:
        return BARE
    why = _state(state)
    if why is not None:
        return why
    if any(is_slice(kind) for kind, _ in told):
        return "whose accelerators are split (MIG), which NCCL does not join"
    return "which have accelerators of several kinds each" if len(told) > 1 else None
