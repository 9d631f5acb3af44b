"""Reduced networks: for people, as data, and as the `cluster` section of a problem."""

import json
import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from nest.instance import Cluster, Level
from nest.io import unstructure
from nest.network import Reduced, Reduction, Stretch
from nest.public.layout import WIDE, Screen, paragraph, table
from nest.spec import ClusterSpec
from nest.units import format_bytes, format_seconds


def topology_figures(network: Cluster | Reduced) -> dict[str, Any]:
    """Return devices, levels and, for a reduced network, the stretch of every reduction and the order of devices.

    All in SI units. `order[i]` is the name of device `i` of the levels.
    """
    if isinstance(network, Cluster):
        return {"devices": network.size, "hierarchical": True, "levels": _level_figures(network.levels)}
    best = network.best
    return {
        "devices": network.pairs.size,
        "hierarchical": best.hierarchy,
        "levels": _level_figures(best.levels),
        "reduction": best.method,
        "distortion": _stretch_figures(best.stretch),
        "message": network.message,
        "reductions": [
            {"method": each.method, "levels": _level_figures(each.levels), "distortion": _stretch_figures(each.stretch)}
            for each in network.reductions
        ],
        "order": list(network.names),
    }


def topology_text(network: Cluster | Reduced, screen: Screen = WIDE) -> str:
    """Describe the same in text."""
    if isinstance(network, Cluster):
        return f"{network.size} devices, a hierarchy\n\n{_level_table(network.levels, screen)}"
    best = network.best
    kind = "a hierarchy" if best.hierarchy else f"reduced by {best.method}"
    lines = (
        f"Stretch: time of {format_bytes(network.message)} by the levels over time by the network, of all pairs; "
        "1 is exact."
    )
    parts = [
        f"{network.pairs.size} devices, {kind}",
        _level_table(best.levels, screen, network.names),
        _reduction_table(network.reductions, best, screen),
        paragraph(lines, screen),
    ]
    return "\n\n".join(parts)


KEPT = ("device", "devices_per_host", "memory", "reserve", "hosts")
"""Keys of a `cluster` section kept when its network becomes levels; hosts lie along them."""


def cluster_text(spec: ClusterSpec, network: Cluster | Reduced) -> str:
    """Return the `cluster` section with the levels of `network` and the rest of `spec`, as YAML."""
    levels = network.levels if isinstance(network, Cluster) else network.best.levels
    lines = ["cluster:"]
    if isinstance(network, Reduced) and not network.best.hierarchy:
        stretch = network.best.stretch
        lines.append(
            f"  # Reduced by {network.best.method}: mean stretch {stretch.mean:.4f}, largest {stretch.largest:.4f}."
        )
    written = unstructure(spec)
    lines += [f"  {key}: {json.dumps(written[key])}" for key in KEPT if written.get(key)]
    lines.append("  levels:")
    for row in _level_figures(levels):
        fields = ", ".join(f"{key}: {json.dumps(value)}" for key, value in row.items())
        lines.append(f"    - {{{fields}}}")
    return "\n".join(lines) + "\n"


def _level_figures(levels: Sequence[Level]) -> list[dict[str, Any]]:
    return [
        {"name": each.name, "fanout": each.fanout, "bandwidth": each.bandwidth, "latency": each.latency}
        for each in levels
    ]


def _stretch_figures(stretch: Stretch) -> dict[str, float]:
    return {"mean": stretch.mean, "largest": stretch.largest}


def _level_table(levels: Sequence[Level], screen: Screen, names: Sequence[str] = ()) -> str:
    """Return a table of levels with their groups and, if devices have names, the first and last of the first group."""
    header = ["level", "name", "fanout", "groups", "devices each", "bandwidth", "latency"]
    devices, capacity, rows = prod(level.fanout for level in levels), 1, []
    for index, level in enumerate(levels):
        capacity *= level.fanout
        row = [str(index), level.name, str(level.fanout), str(devices // capacity), str(capacity)]
        row += [f"{level.bandwidth / 1e9:.4g} GB/s", format_seconds(level.latency)]
        rows.append([*row, f"{names[0]} to {names[capacity - 1]}"] if names else row)
    return table([*header, "first group"] if names else header, rows, (2, 3, 4, 5, 6), screen)


def _reduction_table(reductions: Sequence[Reduction], best: Reduction, screen: Screen) -> str:
    rows = [
        (
            each.method,
            " x ".join(map(str, each.fanouts)),
            f"{each.stretch.mean:.4f}",
            f"{each.stretch.largest:.4f}",
            "taken" if each is best else "",
        )
        for each in reductions
    ]
    return table(("reduction", "fanouts", "mean stretch", "largest", ""), rows, (2, 3), screen)


FIRST = ("device", "devices_per_host", "memory", "reserve", "levels", "topology", "hosts")
"""Keys in reading order; others follow."""

_BREAKS = re.compile("[\x7f-\xa0\u2028\u2029\ufeff\ud800-\udfff]")
"""Characters that JSON leaves alone and YAML reads as line ends or not at all (YAML 1.2, sections 5.1 and 5.4)."""


def section(cluster: ClusterSpec) -> dict[str, Any]:
    """Return the stated keys of `cluster` in reading order, without assumed ones."""
    written: dict[str, Any] = unstructure(cluster)
    fields = {key: value for key, value in written.items() if value not in (None, (), [], {}, 0) and key != "assumed"}
    return {key: fields[key] for key in (*FIRST, *(key for key in fields if key not in FIRST)) if key in fields}


def section_text(cluster: ClusterSpec, comments: Sequence[str] = ()) -> str:
    """Return the `cluster:` section of a problem in YAML, below comments on separate lines."""
    lines = [f"# {_one_line(each)}" for each in comments]
    lines.append("cluster:")
    for key, value in section(cluster).items():
        if key in ("levels", "pools", "between"):
            lines.append(f"  {key}:")
            lines += [f"    - {_flow_mapping(level)}" for level in value]
        elif key == "topology" and isinstance(value, Mapping) and "nodes" in value:
            lines += _graph(value)
        else:
            lines.append(f"  {key}: {flow(value)}")
    return "\n".join(lines) + "\n"


def flow(value: Any) -> str:
    """Return `value` as JSON that YAML reads alike."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _BREAKS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _flow_mapping(level: Mapping[str, Any]) -> str:
    first = ("name", "fanout")
    said = {key: value for key, value in level.items() if value is not None and (key, value) != ("reserve", 0.0)}
    fields = {key: said[key] for key in (*first, *said) if key in said}
    return "{" + ", ".join(f"{key}: {flow(value)}" for key, value in fields.items()) + "}"


def _graph(graph: Mapping[str, Any]) -> list[str]:
    lines = ["  topology:"]
    for key, value in graph.items():
        if isinstance(value, list):
            lines.append(f"    {key}:")
            lines += [f"      - {flow(each)}" for each in value]
        else:
            lines.append(f"    {key}: {flow(value)}")
    return lines


def _one_line(text: str) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
