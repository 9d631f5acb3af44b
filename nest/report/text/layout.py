"""Screens for texts, and sentences, lists of figures and tables fitted to them.

Words are never parted, and nothing is left out.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple


class Tone(Enum):
    """Reason for which a piece of text stands out."""

    HEADING = auto()
    GOOD = auto()
    FAIR = auto()
    BAD = auto()


class Screen(NamedTuple):
    """Medium on which a text is shown.

    Attributes:
        width: columns of a line; None: any number.
        paint: writes a piece of text with a tone; its additions take no columns.
    """

    width: int | None = None
    paint: Callable[[str, Tone], str] = lambda text, tone: text


WIDE = Screen()
"""A file or a pipe: lines of any length, no colours."""


def columns(text: str) -> int:
    """Return the columns of `text` on a terminal: wide letters take two, combining ones none (Unicode annex 11)."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Fill `text` up to `width` columns with spaces, on its left to be flush `right`."""
    spaces = " " * (width - columns(text))
    return spaces + text if right else text + spaces


_UNIT = r"(?:[mun]?s|min|h|[kKMGTP]?i?B(?:/s)?|%|[kMGTP]?FLOP(?:/s)?|samples/s)(?![\w/])"
_GAP = re.compile(rf"(?<=\S)(?!(?<=[^\W\d]) \d)(?!(?<=\d) {_UNIT})(?!(?<=\d) x \d) +(?=\S)")
"""Spaces at which a line may end: not between word and number, number and unit, or multiplied numbers."""

LEAST_ROOM = 20  # Least columns beside the names of figures; with fewer, values stand below their names.


def pieces(text: str) -> list[str]:
    """Split into unbreakable pieces, each with the spaces before it; letters two columns wide are separate pieces."""
    parts, start = [], 0
    for gap in _GAP.finditer(text):
        parts.append(text[start : gap.start()])
        start = gap.start()
    parts.append(text[start:])
    return [part for piece in parts for part in ([piece] if piece.isascii() else _letters(piece))]


def _letters(piece: str) -> list[str]:
    """Split a piece around wide letters: their scripts write no spaces between words."""
    clusters = [""]
    for letter in piece:
        if clusters[-1].strip() and (columns(letter) == 2 or (columns(clusters[-1][-1]) == 2 and letter.isalnum())):
            clusters.append("")
        clusters[-1] += letter
    return clusters


def longest_piece(text: str) -> int:
    """Return the columns that `text` needs with all possible breaks."""
    return max(columns(piece.lstrip()) for piece in pieces(text))


def wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    """Break `text` into lines of at most `width` columns, the second and later ones indented.

    A piece too long for the width gets its own line: the terminal parts it, and it can be copied whole.
    """
    lines: list[str] = []
    for piece in pieces(text):
        if lines and columns(lines[-1]) + columns(piece) <= width:
            lines[-1] += piece
        else:
            lines.append(" " * indent + piece.lstrip() if lines else piece)
    return lines


def paragraph(text: str, screen: Screen = WIDE, indent: int = 0) -> str:
    """Fit each line of `text` to a screen; continuation lines begin `indent` columns further right."""
    if screen.width is None:
        return text
    lines: list[str] = []
    for line in text.split("\n"):
        begins = len(line) - len(line.lstrip())
        lines += wrapped(line, screen.width, min(begins + indent, screen.width // 2))
    return "\n".join(lines)


def opening(begin: str, tone: Tone, rest: str, screen: Screen, indent: int = 0) -> str:
    """Return a paragraph whose first words stand out, if its first line has room for them."""
    lines = paragraph(begin + rest, screen, indent)
    return screen.paint(begin, tone) + lines[len(begin) :] if lines.startswith(begin) else lines


def figures(
    rows: Sequence[tuple[str, str]], screen: Screen = WIDE, indent: int = 0, tones: Mapping[int, Tone] | None = None
) -> str:
    """List names and their values beside each other, or below each other on a narrow screen.

    Args:
        rows: names, "" for more of the figure above, and values.
        indent: spaces before every line.
        tones: of values that stand out, by index.
    """
    beside = max((columns(name) for name, _ in rows), default=0) + 2
    lines: list[str] = []
    for index, (name, value) in enumerate(rows):
        values, heads = [value], [" " * indent + padded(name, beside)]
        if screen.width is not None and indent + beside + columns(value) > screen.width:
            if screen.width - indent - beside >= max(LEAST_ROOM, longest_piece(value)):
                values = wrapped(value, screen.width - indent - beside)
            elif indent + columns(name) + 2 + columns(value) <= screen.width and name:
                heads = [f"{' ' * indent}{name}: "]
            else:
                lines += wrapped(f"{' ' * indent}{name}:", screen.width, indent) if name else []
                heads = [" " * (indent + 2)]
                values = wrapped(value, screen.width - indent - 2)
        heads += [" " * columns(heads[0])] * (len(values) - 1)
        if tones and index in tones:
            values = [screen.paint(line, tones[index]) for line in values]
        lines += [f"{head}{line}".rstrip() for head, line in zip(heads, values, strict=True)]
    return "\n".join(lines)


GAP = 2  # Columns between two columns of a table.


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[int] = (),
    screen: Screen = WIDE,
    tones: Mapping[tuple[int, int], Tone] | None = None,
    least: Sequence[int] = (),
    ruled: bool = True,
) -> str:
    """Align columns under a header.

    On a screen too narrow for that, the form with the fewest lines: cells in several lines, parts of the table below
    each other that each begin with the first column, or a list of figures for each row. Nothing is left out.

    Args:
        right: indices of columns that are flush right.
        tones: of cells that stand out, by indices of row and column.
        least: minimum width of each column, if there is room.
        ruled: a line of dashes parts header and rows.
    """
    whole = _Table(tuple(header), [list(row) for row in rows], frozenset(right), screen, dict(tones or {}), ruled)
    widths = [whole.natural(column) for column in range(len(header))]
    wider = [max(pair) for pair in zip(widths, least or widths, strict=True)]
    if screen.width is None or sum(wider) + GAP * (len(wider) - 1) <= screen.width:
        return "\n".join(whole.lines(wider))
    if sum(widths) + GAP * (len(widths) - 1) <= screen.width:
        return "\n".join(whole.lines(widths))
    narrow = whole.narrowed(screen.width)
    layouts = [None if narrow is None else whole.lines(narrow), whole.in_parts(screen.width), whole.lists()]
    fewest: list[str] = min((lines for lines in layouts if lines is not None), key=len)
    return "\n".join(fewest)


class _Table(NamedTuple):
    """A table with the arguments of `table`, and its possible layouts."""

    header: tuple[str, ...]
    rows: list[list[str]]
    right: frozenset[int]
    screen: Screen
    tones: dict[tuple[int, int], Tone]
    ruled: bool

    def natural(self, column: int) -> int:
        """Return the width of a column whose cells take one line each."""
        return max(columns(row[column]) for row in (self.header, *self.rows))

    def narrowest(self, column: int) -> int:
        """Return the width of a column whose cells take as many lines as possible."""
        return max(longest_piece(row[column]) for row in (self.header, *self.rows))

    def narrowed(self, width: int) -> list[int] | None:
        """Return widths with which the table fits, taken from the widest columns; None: impossible."""
        least = [self.narrowest(column) for column in range(len(self.header))]
        widths = [self.natural(column) for column in range(len(self.header))]
        room = width - GAP * (len(widths) - 1)
        if sum(least) > room:
            return None
        while sum(widths) > room:
            widest = max(
                (column for column in range(len(widths)) if widths[column] > least[column]), key=widths.__getitem__
            )
            widths[widest] -= 1
        return widths

    def lines(self, widths: Sequence[int]) -> list[str]:
        heading = self._row(self.header, widths, dict.fromkeys(range(len(widths)), Tone.HEADING), bottom=True)
        lines = [*heading, (" " * GAP).join("-" * width for width in widths)] if self.ruled else heading
        for index, row in enumerate(self.rows):
            tones = {column: tone for (number, column), tone in self.tones.items() if number == index}
            lines += self._row(row, widths, tones)
        return lines

    def _row(
        self, cells: Sequence[str], widths: Sequence[int], tones: Mapping[int, Tone], *, bottom: bool = False
    ) -> list[str]:
        """Return one row in as many lines as its fullest cell needs; shorter cells begin above or end at the bottom."""
        parted = [
            [cell] if columns(cell) <= width else wrapped(cell, width)
            for cell, width in zip(cells, widths, strict=True)
        ]
        height = max(map(len, parted), default=1)
        filled = [
            [""] * (height - len(part)) + part if bottom else part + [""] * (height - len(part)) for part in parted
        ]
        return [
            (" " * GAP)
            .join(self._cell(column, part[line], widths[column], tones) for column, part in enumerate(filled))
            .rstrip()
            for line in range(height)
        ]

    def _cell(self, column: int, text: str, width: int, tones: Mapping[int, Tone]) -> str:
        whole = padded(text, width, right=column in self.right)
        if column not in tones or not text:
            return whole
        return whole.replace(text, self.screen.paint(text, tones[column]))

    def in_parts(self, width: int) -> list[str] | None:
        """Return tables with the first column and as many others as fit; None: not even one."""
        if len(self.header) == 1:
            return None
        groups: list[list[int]] = []
        room = 0
        first = min(self.natural(0), max(self.narrowest(0), width // 3))
        for column in range(1, len(self.header)):
            cells = [columns(row[column]) for row in self.rows]
            wanted = min(max([longest_piece(self.header[column]), *cells]), width - first - GAP)
            if not groups or wanted + GAP > room:
                groups.append([])
                room = width - first
            groups[-1].append(column)
            room -= wanted + GAP
        lines: list[str] = []
        for group in groups:
            part = self._of([0, *group])
            widths = part.narrowed(width)
            if widths is None:
                return None
            lines += ["", *part.lines(widths)] if lines else part.lines(widths)
        return lines

    def _of(self, chosen: Sequence[int]) -> "_Table":
        places = {column: place for place, column in enumerate(chosen)}
        return self._replace(
            header=tuple(self.header[column] for column in chosen),
            rows=[[row[column] for column in chosen] for row in self.rows],
            right=frozenset(places[column] for column in self.right if column in places),
            tones={(row, places[column]): tone for (row, column), tone in self.tones.items() if column in places},
        )

    def lists(self) -> list[str]:
        """Return a list of figures for each row; of a table without rows, the names."""
        lines: list[str] = []
        if not self.rows:
            return [line for name in self.header for line in paragraph(name, self.screen).split("\n")]
        for index, row in enumerate(self.rows):
            filled = [column for column, cell in enumerate(row) if cell]
            tones = {
                place: self.tones[index, column] for place, column in enumerate(filled) if (index, column) in self.tones
            }
            text = figures([(self.header[column], row[column]) for column in filled], self.screen, tones=tones)
            lines += ["", *text.split("\n")] if lines else text.split("\n")
        return lines
