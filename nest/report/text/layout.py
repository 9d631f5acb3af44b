"""Screens that texts are laid out for, and sentences and lists of figures fitted to them.

Words are never parted, and nothing is left out.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto

from attrs import frozen


class Tone(Enum):
    """Why a piece of text stands out."""

    HEADING = auto()
    GOOD = auto()
    FAIR = auto()
    BAD = auto()


def _as_it_is(text: str, tone: Tone) -> str:
    return text


@frozen
class Screen:
    """Where a text is shown.

    Attributes:
        width: columns a line may take; None: as many as it needs.
        paint: how a piece of text with a tone is written; what it adds takes no columns.
    """

    width: int | None = None
    paint: Callable[[str, Tone], str] = _as_it_is


WIDE = Screen()
"""A file or a pipe: lines as long as they need to be, and no colours."""


def columns(text: str) -> int:
    """Columns that `text` takes on a terminal: wide letters take two, combining ones none (Unicode annex 11)."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def padded(text: str, width: int, *, right: bool = False) -> str:
    """`text` filled up with spaces to `width` columns, on its left when it is to be flush `right`."""
    spaces = " " * (width - columns(text))
    return spaces + text if right else text + spaces


_UNIT = r"(?:[mun]?s|min|h|[kKMGTP]?i?B(?:/s)?|%|[kMGTP]?FLOP(?:/s)?|samples/s)(?![\w/])"
_GAP = re.compile(rf"(?<=\S)(?!(?<=[^\W\d]) \d)(?!(?<=\d) {_UNIT})(?!(?<=\d) x \d) +(?=\S)")
"""Spaces at which a line may end: not between a word and a number, a number and its unit, or numbers multiplied."""

LEAST_ROOM = 20
"""Columns beside the names of figures below which values stand below their names instead."""


def pieces(text: str) -> list[str]:
    """What is never parted, each with the spaces before it; of letters that take two columns each by itself."""
    found, start = [], 0
    for gap in _GAP.finditer(text):
        found.append(text[start : gap.start()])
        start = gap.start()
    found.append(text[start:])
    return [part for piece in found for part in ([piece] if piece.isascii() else _letters(piece))]


def _letters(piece: str) -> list[str]:
    """A piece parted around wide letters: their scripts write no spaces between words."""
    found = [""]
    for letter in piece:
        if found[-1].strip() and (columns(letter) == 2 or (columns(found[-1][-1]) == 2 and letter.isalnum())):
            found.append("")
        found[-1] += letter
    return found


def longest_piece(text: str) -> int:
    """Columns that `text` needs, however often it is parted."""
    return max(columns(piece.lstrip()) for piece in pieces(text))


def wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    """`text` in lines of at most `width` columns, the second and later ones begun after `indent` spaces.

    A piece for which that is too narrow gets a line of its own: the terminal parts it, and it can be copied whole.
    """
    lines: list[str] = []
    for piece in pieces(text):
        if lines and columns(lines[-1]) + columns(piece) <= width:
            lines[-1] += piece
        else:
            lines.append(" " * indent + piece.lstrip() if lines else piece)
    return lines


def paragraph(text: str, screen: Screen = WIDE, indent: int = 0) -> str:
    """`text`, each of its lines fitted to a screen; what goes on below begins `indent` columns further right."""
    if screen.width is None:
        return text
    found: list[str] = []
    for line in text.split("\n"):
        begins = len(line) - len(line.lstrip())
        found += wrapped(line, screen.width, min(begins + indent, screen.width // 2))
    return "\n".join(found)


def opening(begin: str, tone: Tone, rest: str, screen: Screen, indent: int = 0) -> str:
    """A paragraph whose first words stand out, where its first line has room for them."""
    told = paragraph(begin + rest, screen, indent)
    return screen.paint(begin, tone) + told[len(begin) :] if told.startswith(begin) else told


def figures(
    rows: Sequence[tuple[str, str]],
    screen: Screen = WIDE,
    indent: int = 0,
    tones: Mapping[int, Tone] | None = None,
) -> str:
    """Names and their values beside each other, or below each other where that is too narrow.

    Args:
        rows: names, "" for more of the figure above, and values.
        screen: where they are shown.
        indent: spaces before every line.
        tones: of values that stand out, by index.
    """
    beside = max((columns(name) for name, _ in rows), default=0) + 2
    lines: list[str] = []
    for index, (name, value) in enumerate(rows):
        shown, heads = [value], [" " * indent + padded(name, beside)]
        if screen.width is not None and indent + beside + columns(value) > screen.width:
            if screen.width - indent - beside >= max(LEAST_ROOM, longest_piece(value)):
                shown = wrapped(value, screen.width - indent - beside)
            elif indent + columns(name) + 2 + columns(value) <= screen.width and name:
                heads = [f"{' ' * indent}{name}: "]
            else:
                lines += wrapped(f"{' ' * indent}{name}:", screen.width, indent) if name else []
                heads = [" " * (indent + 2)]
                shown = wrapped(value, screen.width - indent - 2)
        heads += [" " * columns(heads[0])] * (len(shown) - 1)
        if tones and index in tones:
            shown = [screen.paint(line, tones[index]) for line in shown]
        lines += [f"{head}{line}".rstrip() for head, line in zip(heads, shown, strict=True)]
    return "\n".join(lines)
