"""Fat trees of htsim (`.topo`): hosts, tiers and pods in words and numbers.

Keys and what they mean: Broadcom/csg-htsim@841d9e7 sim/datacenter/fat_tree_topology.cpp, `load` and
`set_custom_params`. A host is one device. `Radix_Down` and `Radix_Up` count links, `Downlink_speed_Gbps` and
`Downlink_Latency_ns` are of the links below a tier, `Bundle` says how many links join a switch of the tier to each
switch below.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from nest.errors import InputError
from nest.network.imported import Imported
from nest.spec import LevelSpec
from nest.units import BytesPerSecond, Seconds
from nest_networks.files import beginning, text_of

NAMES = ("leaf", "aggregation", "core")
_MARKS = [
    re.compile(rf"^[ \t]*{word}[ \t]+\d+\s*$", re.MULTILINE | re.IGNORECASE) for word in ("nodes", "tiers", "tier")
]
_REMEDY = "htsim would not build this network; check the counts."


@frozen
class _Tier:
    """One tier, of the hosts' switches upwards: links of a switch, and those below it."""

    down: int
    up: int
    speed: float
    latency: float
    switch_latency: float
    bundle: int


class HtsimImporter:
    """Reads the fat trees of htsim."""

    name = "htsim"
    profiled = True

    def accepts(self, source: Any) -> bool:
        """Return whether `source` is the path of a text with `Nodes`, `Tiers` and `Tier`."""
        text = beginning(source)
        return all(mark.search(text) for mark in _MARKS)

    def load(self, source: Path, profile: object = None) -> Imported:
        """A level for each tier.

        Raises:
            InputError: something is missing or cannot be, or counts do not agree.
        """
        head, tiers = _parsed(text_of(source))
        nodes, pod = head["nodes"], head.get("podsize", 0) or head["nodes"]
        groups = [tiers[0].down, pod, nodes][: len(tiers)]
        if len(tiers) == 2 and pod != nodes:
            raise InputError(f"Podsize is {pod} for {nodes} Nodes: with two tiers no links join the pods. {_REMEDY}")
        above = [*groups[1:], nodes]
        if any(many % few for few, many in zip(groups, above, strict=True)):
            raise InputError(f"groups of {groups} hosts do not fit into one another and {nodes} Nodes. {_REMEDY}")
        levels, latency, width, below = [], 0.0, float("inf"), 1
        switches = _switches_of_groups(tiers, groups)
        for index, tier in enumerate(tiers):
            latency += 2 * tier.latency + tier.switch_latency + (tiers[index - 1].switch_latency if index else 0.0)
            links = 1.0 if not index else switches[index - 1] * tiers[index - 1].up / groups[index - 1]
            width = min(width, links * tier.speed)
            levels.append(LevelSpec(groups[index] // below, BytesPerSecond(width), Seconds(latency), NAMES[index]))
            below = groups[index]
        return Imported(tuple(levels), assumptions=("Every host of the file is one device.",))


def _switches_of_groups(tiers: list[_Tier], groups: list[int]) -> list[int]:
    """Switches of the group of each tier but the last: a leaf has itself, a pod its aggregation switches."""
    counts = [1]
    if len(tiers) == 3:
        leaf, middle = tiers[0], tiers[1]
        count, rest = divmod(leaf.up, middle.bundle)
        leaves = groups[1] // leaf.down
        if rest or count * middle.down != leaves * leaf.up:
            raise InputError(
                f"{leaves} leaf switches of a pod have {leaves * leaf.up} links up, {count} aggregation switches "
                f"{count * middle.down} down. {_REMEDY}"
            )
        counts.append(count)
    return counts


def _parsed(text: str) -> tuple[dict[str, int], list[_Tier]]:
    """Parse settings before the tiers, and the tiers."""
    head: dict[str, int] = {}
    tiers: dict[int, dict[str, int]] = {}
    current = head
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        key = words[0].lower()
        if len(words) != 2 or not words[1].isascii() or not words[1].isdigit() or len(words[1]) > 15:
            raise InputError(f"line {number} must be a word and a whole number, is {line.strip()!r:.60}.")
        if key == "tier":
            current = tiers.setdefault(int(words[1]), {})
        elif key in current:
            raise InputError(f"line {number} gives {words[0]:.40} a second time; keep one.")
        else:
            current[key] = int(words[1])
    if "nodes" not in head or head.get("tiers") not in (2, 3):
        raise InputError("the file must begin with the number of Nodes and of Tiers, 2 or 3.")
    count = head["tiers"]
    if head["nodes"] < 2:
        raise InputError(f"Nodes must be at least 2, is {head['nodes']}.")
    if sorted(tiers) != list(range(count)):
        raise InputError(f"Tiers is {count}, so there must be Tier 0 to Tier {count - 1}; there is {sorted(tiers)}.")
    return head, [_tier(tiers[index], index, last=index == count - 1) for index in range(count)]


def _tier(fields: Mapping[str, int], index: int, *, last: bool) -> _Tier:
    needed = ["downlink_speed_gbps", "radix_down", *([] if last else ["radix_up"])]
    for key in needed:
        if not fields.get(key):
            raise InputError(f"Tier {index} lacks {key}, which must be above 0.")
    return _Tier(
        fields["radix_down"],
        fields.get("radix_up", 0),
        fields["downlink_speed_gbps"] * 1e9 / 8,
        fields.get("downlink_latency_ns", 0) / 1e9,
        fields.get("switch_latency_ns", 0) / 1e9,
        fields.get("bundle", 1) or 1,
    )
