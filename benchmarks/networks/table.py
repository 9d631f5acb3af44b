"""Losses by kind of network, as a Markdown table."""

from collections.abc import Iterable, Sequence
from statistics import mean, median

from benchmarks.networks.measure import Losses

SAME = 1e-6
"""Shares of a step time below which a plan loses nothing."""


def table(found: Sequence[Losses], *, moved: bool) -> list[str]:
    """One row for each kind, in the order met, and one for all; `moved`: with the column of another checkout."""
    names = ["planned on levels", *(["then moved"] if moved else []), "this nest"]
    heads = [f"{name}: {what}" for name in names for what in ("mean", "median", "worst")]
    lines = ["| network | problems | " + " | ".join(heads) + " | proved |"]
    lines.append("|---|---|" + "---|" * (len(heads) + 1))
    kinds = list(dict.fromkeys(each.kind for each in found))
    for kind in [*kinds, None]:
        rows = [each for each in found if kind in (each.kind, None)]
        cells = [cell for values in _columns(rows, moved) for cell in _losses(values)]
        proved = sum(each.proved for each in rows)
        lines.append(f"| {kind or 'all'} | {len(rows)} | " + " | ".join(cells) + f" | {proved} |")
    return lines


def _columns(rows: Iterable[Losses], moved: bool) -> list[list[float | None]]:
    columns: list[list[float | None]] = [[each.levels for each in rows]]
    if moved:
        columns.append([each.moved for each in rows])
    return [*columns, [each.here for each in rows]]


def _losses(values: Sequence[float | None]) -> tuple[str, str, str]:
    """The mean, the median and the largest of those that there are."""
    known = [0.0 if value <= SAME else value for value in values if value is not None]
    return (f"{mean(known):.1%}", f"{median(known):.1%}", f"{max(known):.1%}") if known else ("-", "-", "-")


def without(found: Iterable[Losses]) -> int:
    """Problems with a plan on the network and none on its levels."""
    return sum(each.levels is None for each in found)
