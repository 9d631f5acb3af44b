"""Records from texts: every mistake with its file, line and path."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from nest.errors import FieldErrors, InputError, InputErrors, PlacedErrors, Steps
from nest.io.formats import Repeated, json_content
from nest.io.source import (
    MOST_REPORTED,
    STANDARD_INPUT,
    Source,
    display_path,
    parse,
    read_mapping,
    read_text_of,
    survey,
)
from nest.io.structuring import converter
from nest.io.writing import there_is

T = TypeVar("T")


def read(path: Path, cls: type[T]) -> T:
    """Read the file at `path` as a record of class `cls`.

    Raises:
        InputErrors: every mistake found, each with file, line, path and remedy.
    """
    return structure_source(read_mapping(path), cls)


def read_text(text: str, cls: type[T], name: str) -> T:
    """Read `text` as a record of class `cls`; `name` stands for the file in messages and gives the format.

    Raises:
        InputErrors: every mistake found.
    """
    return structure_source(parse(text, name), cls)


def read_mapping_text(text: str, name: str) -> dict[str, Any]:
    """Read `text` as a mapping; `name` stands for the file in messages, and its suffix gives the format.

    Raises:
        InputError: it is not YAML, JSON or TOML with a mapping at its top.
    """
    return parse(text, name).mapping


def structure(mapping: Mapping[str, Any], cls: type[T]) -> T:
    """Convert `mapping` to a record of class `cls`.

    Raises:
        InputErrors: every mistake found, each with its path.
    """
    source = Source("", "", "", dict(mapping))
    if mistakes := survey(source.mapping, []):
        raise source.errors(mistakes)
    return structure_source(source, cls)


def structure_source(source: Source, cls: type[T]) -> T:
    """Convert `source` to a record of class `cls`.

    Raises:
        InputErrors: every mistake found, each with its place in the source.
    """
    try:
        return converter().structure(source.mapping, cls)
    except FieldErrors as mistakes:
        raise source.errors(mistakes.errors) from None


def read_records(path: Path, class_of: Callable[[Mapping[str, Any]], Any]) -> tuple[tuple[int, Any], ...]:
    """Read a file with a record per line, each after its line number, without empty lines.

    `class_of` gives the class of a line's record, or raises `FieldError`.

    Raises:
        InputErrors: every mistake found, each with file, line, path and remedy.
    """
    records: list[tuple[int, Any]] = []
    sentences: list[str] = []
    for number, source in _sources(Path(path)):
        try:
            records.append((number, _record(source, class_of)))
        except InputErrors as error:
            sentences += error.problems
            if len(sentences) >= MOST_REPORTED:
                break
    if sentences:
        raise PlacedErrors(sentences[:MOST_REPORTED])
    if not records:
        raise PlacedErrors([f"{path}: the file is empty."])
    return tuple(records)


def _sources(path: Path) -> Iterator[tuple[int, Source]]:
    """Yield lines with content, by number, as separate texts named by file and line."""
    for number, line in enumerate(read_text_of(path).split("\n"), 1):
        if line.strip():
            yield number, Source(f"{path}:{number}", line, "json", {})


def _record(source: Source, class_of: Callable[[Mapping[str, Any]], Any]) -> Any:
    repeated: Repeated = []
    try:
        content = json_content(source.text, repeated)
    except json.JSONDecodeError as error:
        raise InputErrors([f"{source.name}: this is not JSON: {error.msg} (column {error.colno})."]) from None
    except (ValueError, RecursionError):
        raise InputErrors([f"{source.name}: this is not JSON that can be read."]) from None
    if not isinstance(content, dict):
        raise InputErrors([f"{source.name}: each line must hold keys and values, as JSON: {{...}}."])
    # The name says the line already: without the text no line is looked up within it.
    line = Source(source.name, "", "json", content)
    if mistakes := survey(content, repeated):
        raise line.errors(mistakes)
    try:
        return structure_source(line, class_of(content))
    except FieldErrors as wrong:
        raise line.errors(wrong.errors) from None


_PATH = re.compile(r"[A-Za-z_]\w*(?:\.[\w-]+|\[\d+\])*")
_STEP = re.compile(r"\[(\d+)\]|([\w-]+)")


def placed(path: Path, error: InputError, below: str = "") -> InputError:
    """Return `error`, found after reading the file at `path`, with file and line before each sentence, in line order.

    An error that already names its file is unchanged. Sentences may begin with a path, such as `fixed.tp is 3, ...`;
    `below` is the key above these paths, empty: at the top.
    """
    if isinstance(error, PlacedErrors):
        return error
    sentences = list(error.problems if isinstance(error, InputErrors) else (str(error),))
    lines: list[int | None] = [None] * len(sentences)
    if path == STANDARD_INPUT or there_is(path) == "file":  # A pipe cannot be read again.
        with suppress(InputError):
            source = read_mapping(path)
            paths = [_leading_path(sentence) for sentence in sentences]
            if below:
                known = source.mapping.get(below)
                inside = [isinstance(known, dict) and steps[:1] and steps[0] in known for steps in paths]
                sentences = [
                    f"{below}.{text}" if there else text for text, there in zip(sentences, inside, strict=True)
                ]
                paths = [(below, *steps) for steps in paths]
            lines = source.lines(paths)
            sentences = _with_lines(source, sentences, error.others if isinstance(error, InputErrors) else {})
    rows = sorted(zip(lines, sentences, strict=True), key=lambda row: row[0] or 0)
    name = display_path(path)
    return PlacedErrors(f"{name}:{line}: {text}" if line else f"{name}: {text}" for line, text in rows)


def _with_lines(source: Source, sentences: list[str], others: Mapping[str, str]) -> list[str]:
    """Return the sentences with the line of the second place they name."""
    lines = source.lines([_leading_path(others.get(text, "")) for text in sentences])
    return [
        text.replace(f" {others[text]} ", f" {others[text]} (line {line}) ", 1) if line and text in others else text
        for text, line in zip(sentences, lines, strict=True)
    ]


def steps_of(path: str) -> Steps | None:
    """Split a path such as `cluster.levels[1].fanout` into steps (`nest.errors.dotted`); None: it is none."""
    return _leading_path(path) if _PATH.fullmatch(path) else None


def _leading_path(sentence: str) -> Steps:
    match = _PATH.match(sentence)
    if match is None:
        return ()
    return tuple(int(index) if index else name for index, name in _STEP.findall(match[0]))
