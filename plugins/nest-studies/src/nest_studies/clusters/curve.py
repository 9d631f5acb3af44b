"""Files of plans of every number of nodes: JSON lines that a plan is found in without reading the others."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nest.errors import InputError

SUFFIX = ".jsonl"
"""Suffix of such a file."""

BEHIND = ', "uses": '
"""Separator in a line between its key and the rest."""


def curve_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    """A file of the rows of a recommendation, a line each."""
    return "".join(json.dumps(row, allow_nan=False, ensure_ascii=False) + "\n" for row in rows)


def rows_of(path: Path, nodes: int, clusters: Iterable[str] = ()) -> tuple[dict[str, Any], ...]:
    """The rows of so many nodes in a file, of some of its clusters; none named: of all.

    Raises:
        InputError: the file cannot be read, is none of `nest recommend --curve`, or has no such row.
    """
    wanted, met, most = set(clusters), dict[str, None](), 0
    rows: list[dict[str, Any]] = []
    try:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                head, behind, _ = line.partition(BEHIND)
                key = json.loads(f"{head}}}") if behind else {}
                met.setdefault(key["cluster"])
                most = max(most, key["nodes"])
                if key["nodes"] == nodes and (not wanted or key["cluster"] in wanted):
                    rows.append(json.loads(line))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path}: not a file of `nest recommend --curve`.") from None
    unknown = sorted(wanted - met.keys())
    if unknown:
        raise InputError(f"{path}: it has no cluster {unknown[0]!r}; it has {', '.join(met)}.")
    if not rows:
        raise InputError(f"{path}: it has no plans of {nodes} nodes; it has those of 1 to {most}.")
    return tuple(rows)
