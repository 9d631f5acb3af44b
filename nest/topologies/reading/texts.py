"""Files that are told by what they say, whatever they are called."""

from pathlib import Path

BEGINNING = 64 * 2**10
"""Bytes looked at to tell what a file is."""


def beginning(source: object) -> str:
    """How the file at the path `source` begins; empty where it is no path of a file that can be read."""
    if not isinstance(source, Path):
        return ""
    try:
        if not source.is_file():
            return ""
        with source.open("rb") as stream:
            return stream.read(BEGINNING).decode("utf-8-sig", errors="replace")
    except (OSError, ValueError):
        return ""
