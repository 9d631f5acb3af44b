"""What a text is laid out for: how wide it may be, and how what stands out looks there."""

import unicodedata
from collections.abc import Callable
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
    return sum(_columns(letter) for letter in text)


def is_wide(letter: str) -> bool:
    """Whether a letter takes two columns."""
    return unicodedata.east_asian_width(letter) in "WF"


def _columns(letter: str) -> int:
    if unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if is_wide(letter) else 1


def padded(text: str, width: int, *, right: bool = False) -> str:
    """`text` filled up with spaces to `width` columns, on its left when it is to be flush `right`."""
    spaces = " " * (width - columns(text))
    return spaces + text if right else text + spaces
