"""Losses by kind of network, as a Markdown table."""

from collections.abc import Iterable, Sequence
from statistics import mean, median

from benchmarks.networks.measure import Losses

SAME = 1e-6
"""Shares of a step time up to which a plan loses nothing: what CP-SAT proves."""


def table(found: Sequence[Losses], *, moved: bool) -> list[str]:
    """One row for each kind, in the order met, and one for all; `moved`: with the column of another checkout."""
    heads = ["network", "problems", "planned on levels", *(["then moved"] if moved else []), "this nest", "proved"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for kind in [*dict.fromkeys(each.kind for each in found), None]:
        rows = [each for each in found if kind in (each.kind, None)]
        cells = [kind or "all", str(len(rows)), *map(_losses, _columns(rows, moved)), str(sum(e.proved for e in rows))]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _columns(rows: Iterable[Losses], moved: bool) -> list[list[float | None]]:
    columns: list[list[float | None]] = [[each.levels for each in rows]]
    if moved:
        columns.append([each.moved for each in rows])
    return [*columns, [each.here for each in rows]]


def _losses(values: Sequence[float | None]) -> str:
    """The mean, the median and the largest of those that there are."""
    known = [0.0 if value <= SAME else value for value in values if value is not None]
    return " / ".join(f"{each:.1%}" for each in (mean(known), median(known), max(known))) if known else "-"


def without(found: Iterable[Losses]) -> int:
    """Problems with a plan on the network and none on its levels."""
    return sum(each.levels is None for each in found)
