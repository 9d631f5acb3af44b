"""A `cluster` section as people keep it in a file."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from nest.io import unstructure
from nest.spec import ClusterSpec

FIRST = ("device", "devices_per_host", "memory", "reserve", "levels", "topology", "hosts")
"""Keys in the order in which people read them; others follow."""

_BREAKS = re.compile("[\x7f-\xa0\u2028\u2029\ufeff\ud800-\udfff]")
"""What JSON leaves as it is and YAML reads as the end of a line, or not at all (YAML 1.2, section 5.1 and 5.4)."""


def section(cluster: ClusterSpec) -> dict[str, Any]:
    """The keys of `cluster` that say something, in the order in which people read them, without what was assumed."""
    written: dict[str, Any] = unstructure(cluster)
    told = {key: value for key, value in written.items() if value not in (None, (), [], {}, 0) and key != "assumed"}
    return {key: told[key] for key in (*FIRST, *(key for key in told if key not in FIRST)) if key in told}


def section_text(cluster: ClusterSpec, comments: Sequence[str] = ()) -> str:
    """The `cluster:` section of a problem, in YAML.

    Args:
        cluster: what it says.
        comments: written above it, each on a line of its own.
    """
    lines = [f"# {_one_line(each)}" for each in comments]
    lines.append("cluster:")
    for key, value in section(cluster).items():
        if key == "levels":
            lines.append("  levels:")
            lines += [f"    - {_flow_mapping(level)}" for level in value]
        elif key == "topology" and isinstance(value, Mapping) and "nodes" in value:
            lines += _graph(value)
        else:
            lines.append(f"  {key}: {flow(value)}")
    return "\n".join(lines) + "\n"


def flow(value: Any) -> str:
    """`value` as JSON, which YAML reads alike."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _BREAKS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _flow_mapping(level: Mapping[str, Any]) -> str:
    first = ("name", "fanout")
    told = {key: level[key] for key in (*first, *level) if level.get(key) is not None}
    return "{" + ", ".join(f"{key}: {flow(value)}" for key, value in told.items()) + "}"


def _graph(graph: Mapping[str, Any]) -> list[str]:
    """A graph, each node and link on a line of its own."""
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
