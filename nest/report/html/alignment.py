"""Columns of tables that read as columns: one unit, as many decimals in every row."""

import math
import re
from collections.abc import Mapping, Sequence

from nest.report.html.records import Cell, Table

UNITS: Mapping[str, float] = {
    "TiB": 2.0**40, "GiB": 2.0**30, "MiB": 2.0**20, "KiB": 2.0**10, "B": 1.0,
    "h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9,
}  # fmt: skip
"""Units that `nest.units` writes times and sizes in, and what they are in SI units."""

DIGITS = 4
"""Digits of the greatest figure of a column."""

LONG = 24
"""Characters from which words are broken over lines."""

_FIGURE = re.compile(r"(?P<number>[0-9][0-9.]*) (?P<unit>[A-Za-z]+)")


def aligned(table: Table) -> tuple[tuple[Cell, ...], ...]:
    """The rows of a table, figures of a column that all have one unit with the same number of decimals."""
    columns = list(zip(*table.rows, strict=True))
    for place, cells in enumerate(columns):
        if place and place not in table.words:
            told = alike([cell.text for cell in cells], [cell.value for cell in cells])
            columns[place] = tuple(Cell(text, cell.value) for text, cell in zip(told, cells, strict=True))
    return tuple(zip(*columns, strict=True))


def alike(texts: Sequence[str], values: Sequence[float | None]) -> list[str]:
    """Figures with the same number of decimals, where all have one unit; as they are otherwise.

    Args:
        texts: of the figures, such as `21.8 GiB`; what is no figure stays as it is.
        values: of the figures, SI units; None: not a figure.
    """
    found = [
        _FIGURE.fullmatch(text) if value is not None and value > 0 else None
        for text, value in zip(texts, values, strict=True)
    ]
    units = {match["unit"] for match in found if match is not None}
    if len(units) != 1 or not units <= set(UNITS):
        return list(texts)
    (unit,) = units
    greatest = max(value for value, match in zip(values, found, strict=True) if match is not None and value is not None)
    most = max(len(match["number"].partition(".")[2]) for match in found if match is not None)
    decimals = min(most, max(DIGITS - 1 - math.floor(math.log10(greatest / UNITS[unit])), 0))
    told = []
    for text, value, match in zip(texts, values, found, strict=True):
        if match is not None and value is not None:
            told.append(f"{value / UNITS[unit]:.{decimals}f} {unit}")
        else:
            told.append(f"0 {unit}" if value == 0 and _FIGURE.fullmatch(text) else text)
    return told


def column_styles(table: Table) -> tuple[str, ...]:
    """Classes of the cells of each column: `words` are set flush left, `long` ones may be broken over lines."""
    found = []
    for place, name in enumerate(table.header):
        words = place in table.words
        longest = max((len(row[place].text) for row in table.rows), default=len(name))
        found.append(" ".join([*(["words"] if words else []), *(["long"] if words and longest >= LONG else [])]))
    return tuple(found)
