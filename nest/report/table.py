"""Plain text tables."""

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


def ranges(names: Sequence[str]) -> str:
    """Layer names in short: runs such as `layers.0 layers.1 layers.2` become `layers.0-2`."""
    parts: list[tuple[str, int | None, int | None]] = []
    for name in names:
        stem, dot, number = name.rpartition(".")
        if dot and number.isdigit():
            last = parts[-1] if parts else None
            if last is not None and last[0] == stem and last[2] == int(number) - 1:
                parts[-1] = (stem, last[1], int(number))
            else:
                parts.append((stem, int(number), int(number)))
        else:
            parts.append((name, None, None))
    return ", ".join(
        stem if first is None else f"{stem}.{first}" if first == last else f"{stem}.{first}-{last}"
        for stem, first, last in parts
    )
