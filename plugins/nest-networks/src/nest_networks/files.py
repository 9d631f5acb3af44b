"""Texts of files, for importers that know their files by what is in them, and lists of host names in them."""

import re
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from nest.errors import InputError
from nest.io.source import LARGEST_FILE, read_text_of
from nest.network.imported import PartOf

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

BEGINNING = 64 * 2**10
"""Bytes by which an importer tells whether a file is of its kind."""


def path_of(source: object) -> Path | None:
    """The file that a source is, or is a part of; None: it is no file."""
    if isinstance(source, PartOf):
        return source.path
    return source if isinstance(source, Path) else None


def beginning(source: object, most: int = BEGINNING) -> str:
    """The first `most` bytes of a file that a source is; empty: it is no whole file, cannot be read, or is no text."""
    try:
        if not isinstance(source, Path) or not source.is_file():
            return ""
        with source.open("rb") as stream:
            data = stream.read(most)
    except (OSError, ValueError):
        return ""
    if b"\0" in data:
        return ""
    return data.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")


def all_of(source: object) -> str:
    """As `beginning`, of all that is read of files: logs have what is looked for anywhere."""
    return beginning(source, LARGEST_FILE)


def text_of(path: Path) -> str:
    """Text of a file, with the line ends of Unix.

    Raises:
        InputError: it cannot be read, is too large or is no text; errors do not name the file, whoever asked does.
    """
    try:
        return read_text_of(path).replace("\r\n", "\n")
    except InputError as error:
        raise InputError(str(error).removeprefix(f"{path}: ")) from None


def xml_of(text: str) -> "Element":
    """The root of an XML text.

    Raises:
        InputError: it is none, or declares entities.
    """
    from xml.etree.ElementTree import ParseError, fromstring

    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise InputError("the file declares XML entities, which are not read.")
    try:
        return fromstring(text)
    except (ParseError, ValueError) as error:
        raise InputError(f"the file is not well-formed XML: {error!s:.100}. Import all of it.") from None


MOST_HOSTS = 2**20
"""More hosts than any cluster has; beyond it a range is a slip."""

MOST_DIGITS = 18
"""Of a number in a range: Slurm reads them into 64 bits (src/common/hostlist.c)."""

_RANGE = re.compile(r"\s*([0-9]+)\s*(?:-\s*([0-9]+)\s*)?")
_PART = re.compile(r"[^\[\],\s]+|\[[^\[\]]*\]")


def host_names(text: str) -> tuple[str, ...]:
    """The names that a list of hosts stands for, in its order; those that it has twice are there twice.

    Names are separated by commas or blanks. Ranges in brackets count up; a first number with leading zeros gives its
    width to all numbers of its range. Of several brackets the last counts fastest. As `scontrol show hostnames` does
    (Slurm 22.05; with three brackets or more it gives the same names in another order); also names that go on behind
    their last bracket, which it refuses.

    Raises:
        InputError: brackets do not match, or a range is none.
    """
    names: list[str] = []
    for word in _words(text):
        names += _names(word, MOST_HOSTS - len(names))
    return tuple(names)


def _words(text: str) -> Iterator[str]:
    """The entries of a list; commas inside brackets belong to them."""
    depth, word = 0, ""
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            raise InputError(f"the list of hosts {text!r:.60} has brackets that do not match; close each.")
        if depth == 0 and (letter == "," or letter.isspace()):
            if word:
                yield word
            word = ""
        else:
            word += letter
    if depth:
        raise InputError(f"the list of hosts {text!r:.60} has a bracket that is not closed; write `n[1-8]`.")
    if word:
        yield word


def _names(word: str, most: int) -> list[str]:
    parts: list[Sequence[str]] = []
    count = 1
    for part in _PART.findall(word):
        choices = _numbers(part, word, most) if part.startswith("[") else (part,)
        count *= len(choices)
        if count > most:
            raise _too_many(word)
        parts.append(choices)
    return ["".join(chosen) for chosen in product(*parts)]


def _numbers(bracket: str, word: str, most: int) -> list[str]:
    numbers: list[str] = []
    for written in bracket[1:-1].split(","):
        match = _RANGE.fullmatch(written)
        if match is None or max(len(number or "") for number in match.groups()) > MOST_DIGITS:
            raise InputError(f"{written.strip()!r:.40} in {word!r:.60} is no number and no range such as `01-08`.")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise InputError(f"the range {written.strip()!r:.40} in {word!r:.60} counts down; turn it round.")
        if int(last) - int(first) >= most - len(numbers):
            raise _too_many(word)
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers


def _too_many(word: str) -> InputError:
    return InputError(f"{word!r:.60} stands for more than {MOST_HOSTS} names; correct its ranges.")


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts `node2` before `node10`."""
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in re.split(r"(\d+)", name)]
