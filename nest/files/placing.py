"""Sentences that begin with a path, such as `fixed.tp is 3, ...`, get the file and the line it was written on."""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from nest.errors import InputError, InputErrors, PlacedErrors, Steps
from nest.files.places import lines_of
from nest.files.source import STANDARD_INPUT, Source, read_source, shown
from nest.files.writing import there_is

_PATH = re.compile(r"[A-Za-z_]\w*(?:\.[\w-]+|\[\d+\])*")
_STEP = re.compile(r"\[(\d+)\]|([\w-]+)")


def place(path: Path, error: InputError, below: str = "") -> PlacedErrors:
    """`error` with the file at `path` in front of each sentence, in the order of the lines.

    Args:
        path: the file.
        error: its sentences may begin with a path.
        below: the key under which these paths begin; empty: at the top of the file.
    """
    sentences = list(error.problems if isinstance(error, InputErrors) else (str(error),))
    lines: list[int | None] = [None] * len(sentences)
    if path == STANDARD_INPUT or there_is(path) == "file":  # A pipe cannot be read again.
        with suppress(InputError):
            source = read_source(path)
            paths = [_leading_path(sentence) for sentence in sentences]
            if below:
                known = source.mapping.get(below)
                inside = [isinstance(known, dict) and steps[:1] and steps[0] in known for steps in paths]
                sentences = [
                    f"{below}.{told}" if there else told for told, there in zip(sentences, inside, strict=True)
                ]
                paths = [(below, *steps) for steps in paths]
            lines = lines_of(source, paths)
            sentences = _with_lines(source, sentences, error.others if isinstance(error, InputErrors) else {})
    rows = sorted(zip(lines, sentences, strict=True), key=lambda row: row[0] or 0)
    name = shown(path)
    return PlacedErrors(f"{name}:{line}: {told}" if line else f"{name}: {told}" for line, told in rows)


def _with_lines(source: Source, sentences: list[str], others: Mapping[str, str]) -> list[str]:
    """The sentences with the line of the second place they name behind it."""
    lines = lines_of(source, [_leading_path(others.get(told, "")) for told in sentences])
    return [
        told.replace(f" {others[told]} ", f" {others[told]} (line {line}) ", 1) if line and told in others else told
        for told, line in zip(sentences, lines, strict=True)
    ]


def _leading_path(sentence: str) -> Steps:
    found = _PATH.match(sentence)
    if found is None:
        return ()
    return tuple(int(index) if index else name for index, name in _STEP.findall(found[0]))
