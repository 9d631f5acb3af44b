"""Slurm's `slurm.conf`, what `scontrol show nodes` and what `sinfo` print: hosts with their accelerators and states.

slurm.conf(5), "NODE CONFIGURATION": `Feature` (also `Features`), `Gres=gpu:TYPE:COUNT`, `NodeName=DEFAULT`;
scontrol(1), `show nodes`: `ActiveFeatures`, `AvailableFeatures`. States: `State` of both, slurm.conf(5), "DOWN NODE
CONFIGURATION", and sinfo(1), "NODE STATE CODES". The switches are those of the `topology.conf` beside.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from nest.errors import InputError
from nest.network.imported import Imported
from nest.spec import LinkProfile
from nest.units import first_names
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
    "MAINTENANCE", "NOT_RESPONDING", "NO_RESPOND", "NO_RESP", "RESERVED", "RESV", "DRNG", "FAILG", "FUTR", "ERR",
    "REBOOT_ISSUED",
})  # fmt: skip
"""States in which a node takes no job, in full or as `sinfo` shortens them (src/common/slurm_protocol_defs.c)."""

POWER = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POW_DN"})
"""States of nodes without power."""

MARKS = {
    "*": "NOT_RESPONDING", "$": "MAINT", "%": "POWERING_DOWN", "!": "POWER_DOWN", "^": "REBOOT_ISSUED",
}  # fmt: skip
"""Suffixes of states in which a node takes no job (sinfo(1), "NODE STATE CODES")."""

SHOWN = re.compile(r"\bCPUAlloc=\d")
"""In what `scontrol show nodes` prints, where `#` begins no comment: `OS=Linux 6.8.0 #1 SMP`."""

_SPACED = re.compile(r"(?<=\w)[ \t]+=[ \t]*")
_INCLUDE = re.compile(r"^[ \t]*Include[ \t]+\S", re.IGNORECASE | re.MULTILINE)
_DOWN = re.compile(r'^[ \t]*DownNodes=(?:"([^"]*)"|(\S*))', re.IGNORECASE | re.MULTILINE)
_NODE = re.compile(r"^[ \t]*NodeName[ \t]*=", re.IGNORECASE | re.MULTILINE)
_PAIR = re.compile(r'([A-Za-z]+)=(?:"([^"]*)"|(\S*))')
_ACCELERATORS = re.compile(
    r"gpu(?::(?P<type>(?!no_consume\b)[A-Za-z][^:,(]*))?(?::no_consume)?(?::(?P<count>\d{1,4}))?(?:\([^)]*\))?",
    re.IGNORECASE,
)


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
            InputError: no node has accelerators, or none with accelerators is under a switch; hosts of one kind have
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


class SlurmJsonImporter:
    """Reads what `scontrol show nodes --json` and `sinfo --json` print."""

    name = "slurm-json"
    profiled = True

    def accepts(self, source: Any) -> bool:
        """Return whether `source` is a file in JSON with nodes of Slurm."""
        text = beginning(source)
        return text.lstrip().startswith("{") and all(re.search(rf'"{key}"\s*:', text) for key in ("gres", "state"))

    def load(self, source: Path, profile: LinkProfile | None = None) -> Imported:
        """Its hosts, under the switches of the `topology.conf` beside it.

        Raises:
            InputError: it is no JSON, has no nodes, or as of `scontrol show nodes`.
        """
        try:
            content = json.loads(text_of(source))
        except (ValueError, RecursionError) as error:
            raise InputError(f"this is not JSON: {error!s:.100}. Import all of it.") from None
        rows = [row for key in ("nodes", "sinfo") for row in _rows(content.get(key))]
        nodes: dict[str, dict[str, str]] = {}
        for row in rows:
            own = row.get("nodes") if "name" not in row else None
            names = own.get("nodes") if isinstance(own, Mapping) else [row.get("name")]
            node, gres = row.get("node", row), row.get("gres")
            keys = {
                "state": _joined(node, "state", "state_flags") if isinstance(node, Mapping) else "",
                "gres": str((gres.get("total") if isinstance(gres, Mapping) else gres) or ""),
                "features": _joined(row, "features"),
                "activefeatures": _joined(row, "active_features", "activefeatures"),
            }
            for name in names if isinstance(names, list) else ():
                if isinstance(name, str) and name:
                    _add(nodes, name, keys)
        if not nodes:
            raise InputError("the file names no nodes; import what `scontrol show nodes --json` prints.")
        return _network(source, nodes, profile, [])


def _rows(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _joined(row: Mapping[str, Any], *keys: str) -> str:
    """Words under keys, which releases of Slurm write as a text or as a list."""
    values = [row.get(key) or () for key in keys]
    return ",".join(str(word) for value in values for word in ([value] if isinstance(value, str) else value))


def _add(nodes: dict[str, dict[str, str]], name: str, keys: dict[str, str]) -> None:
    """Add a node; of one with several rows the first counts that says why it takes no job."""
    known = nodes.setdefault(name, keys)
    nodes[name] = keys if _state(known["state"]) is None else known


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
        columns: _Columns | None = None
        nodes: dict[str, dict[str, str]] = {}
        for number, line in enumerate(text_of(source).splitlines(), 1):
            if columns is None:
                columns = _columns(line)
            elif line.strip() and not line.endswith(EMPTY):
                keys = columns.read(line, number)
                for name in host_names(keys.pop("name")):
                    _add(nodes, name, keys)
        return _network(source, nodes, profile, [])


EMPTY = (" n/a", " n/a ")
"""Ends of lines on partitions without nodes."""

BLANK = "RESERVATION"
"""A column of `sinfo --long`, empty for nodes without one."""

FREE = frozenset({"REASON", "COMMENT", "EXTRA"})
"""Columns with blanks in their cells."""


@frozen
class _Columns:
    """Columns of `sinfo`.

    Attributes:
        places: of the cells that are read, by what they hold; from the end where cells before them have blanks.
        count: of all columns.
        free: whether a column has blanks in its cells.
        separator: between cells; None: blanks.
        blank: place of a column with empty cells; None: there is none.
        widths: letters to which `sinfo -O` cuts cells, where that can be told.
    """

    places: Mapping[str, int]
    count: int
    free: bool
    separator: str | None
    blank: int | None
    widths: Mapping[str, int]

    def read(self, line: str, number: int) -> dict[str, str]:
        """The cells of a line.

        Raises:
            InputError: it has other cells than the names of the columns, or they are cut.
        """
        cells = [cell.strip() for cell in line.split(self.separator)]
        if self.blank is not None and len(cells) == self.count - 1:
            cells.insert(self.blank, "")
        if len(cells) < self.count - self.free or (len(cells) > self.count and not self.free):
            raise InputError(f"line {number} has {len(cells)} cells for {self.count} columns; print all of them.")
        keys = {key: cells[place] for key, place in self.places.items()}
        cut = next((key for key, width in self.widths.items() if len(keys[key]) >= width), None)
        if cut is None and re.fullmatch(r"gpu:[^:,(]*[A-Za-z][^:,(]*", keys.get("gres", "")):
            cut = "gres"
        if cut is not None:
            raise InputError(
                f"line {number}: sinfo has cut {keys[cut]!r:.60}; print whole columns: `sinfo -N -o '%N %G %T'`."
            )
        return keys


def _columns(line: str) -> _Columns | None:
    """The columns that a line names; None: it names none, or not those that are needed."""
    words = {"NODELIST": "name", "HOSTNAMES": "name", "GRES": "gres", "FEATURES": "features"}
    words |= {"AVAIL_FEATURES": "features", "ACTIVE_FEATURES": "activefeatures", "FEATURES_ACT": "activefeatures"}
    words |= dict.fromkeys(("STATE", "STATELONG", "STATECOMPACT", "STATECOMPLETE"), "state")
    separator = "|" if "|" in line else None
    names = [word.strip() for word in line.split(separator)]
    free = [] if separator else [place for place, word in enumerate(names) if word in FREE]
    places, widths = dict[str, int](), dict[str, int]()
    cells = list(re.finditer(r"\S+(\s*)", line)) if separator is None else []
    for place, word in enumerate(names):
        if word == "HOSTNAMES" and "NODELIST" in names:  # Of machines, which jobs do not go by.
            continue
        if word not in words or (free and free[0] < place < free[-1]):
            continue
        places[words[word]] = place - len(names) if free and free[0] < place else place
        if cells and len(cells[place][1]) > 1 and words[word] in ("name", "gres"):
            widths[words[word]] = len(cells[place][0])
    if not {"name", "state"} <= set(places):
        return None
    blank = names.index(BLANK) if BLANK in names and not free and separator is None else None
    return _Columns(places, len(names), bool(free), separator, blank, widths)


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
    asleep = [name for own in kinds.values() for name in own if _asleep(nodes[name].get("state", ""))]
    if asleep:
        notes.append(
            f"Without power: {first_names(asleep)} ({len(asleep)}); planned with, as Slurm starts them for a job."
        )
    if not kinds:
        if set(left) <= {BARE}:
            raise InputError("no node has accelerators: add `Gres=gpu:TYPE:COUNT` to nodes that have some.")
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
            f"nodes have accelerators, and the {SWITCHES} beside the file has none of them; put the file of the same "
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
    if not SHOWN.search(text):
        text = "\n".join(line.partition("#")[0] for line in text.replace("\\\n", " ").splitlines())
    records = _NODE.split(text)
    for record in records[1:]:
        lines = record.split("\n")
        # Of slurm.conf a line is a node; scontrol goes on in lines that are indented.
        whole = [lines[0]]
        for line in lines[1:]:
            if not line.startswith((" ", "\t")):
                break
            whole.append(line)
        names, _, rest = " ".join(whole).partition(" ")
        pairs = reversed(_PAIR.findall(rest))  # A `Reason` may have what looks like further keys.
        keys = {key.lower(): quoted or plain for key, quoted, plain in pairs if (quoted or plain) != "(null)"}
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
    out += [word for mark, word in MARKS.items() if mark in state and word not in out]
    return f"whose state is {' '.join(out)}" if out else None


def _asleep(state: str) -> bool:
    """Return whether Slurm has to start a node in such a state."""
    return "~" in state or bool(POWER & set(re.split(r"[^A-Z_]+", state.upper())))


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
