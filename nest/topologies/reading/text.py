"""The text of a file, for importers that know their files by what is in them."""

from pathlib import Path

from nest.errors import InputError
from nest.io.source import read_text_of
from nest.network.imported import PartOf

BEGINNING = 64 * 2**10
"""Bytes by which an importer tells whether a file is of its kind."""


def path_of(source: object) -> Path | None:
    """The file that a source is, or is a part of; None: it is no file."""
    if isinstance(source, PartOf):
        return source.path
    return source if isinstance(source, Path) else None


def beginning(source: object) -> str:
    """The first characters of the file that a source is; empty: it is no file, cannot be read, or is no text."""
    path = path_of(source)
    try:
        if path is None or not path.is_file():
            return ""
        with path.open("rb") as stream:
            data = stream.read(BEGINNING)
    except (OSError, ValueError):
        return ""
    if b"\0" in data:
        return ""
    return data.decode("utf-8-sig", errors="replace")


def text_of(path: Path) -> str:
    """What a file says.

    Raises:
        InputError: it cannot be read, is too large or is no text; errors do not name the file, whoever asked does.
    """
    try:
        return read_text_of(path)
    except InputError as error:
        raise InputError(str(error).removeprefix(f"{path}: ")) from None
