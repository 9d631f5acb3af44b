"""Plain text tables."""

import re
from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Aligned columns under a header; columns whose index is in `right` are flush right."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    lines = []
    for row in (header, ["-" * width for width in widths], *rows):
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


LONGEST_LIST = 60
"""Characters of layer names in one row; longer lists are cut short."""

_NUMBERED = re.compile(r"(.*?)(\d+)")


def ranges(names: Sequence[str]) -> str:
    """Layer names in short: runs such as `layers.0 layers.1 layers.2` become `layers.0-2`, long lists are cut."""
    parts: list[str] = []
    stem, first, last = "", -1, -1
    for name in names:
        match = _NUMBERED.fullmatch(name)
        number = int(match[2]) if match else -1
        if match and parts and match[1] == stem and number == last + 1 and last >= 0:
            last = number
            parts[-1] = f"{stem}{first}-{last}"
        else:
            parts.append(name)
            stem, first, last = (match[1], number, number) if match else ("", -1, -1)
    whole = ", ".join(parts)
    if len(whole) <= LONGEST_LIST:
        return whole
    shown = parts[0]
    for part in parts[1:]:
        if len(shown) + len(part) > LONGEST_LIST - 20:
            break
        shown += f", {part}"
    return f"{shown}, ... ({len(names)} layers)"
