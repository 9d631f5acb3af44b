"""Files of JSON lines: a record a line, every mistake with the number of its line."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nest.errors import FieldError, InputErrors, PlacedErrors
from nest.files.source import MOST_REPORTED, Mistake, Source, read_text_of
from nest.files.structuring import Mistakes, converter
from nest.files.survey import survey


def read_records(path: Path, class_of: Callable[[Mapping[str, Any]], Any]) -> tuple[Any, ...]:
    """The records in the file at `path`, in the order of its lines; lines without content are passed over.

    Args:
        path: of the file.
        class_of: the class of the record a line holds; raises `FieldError` where the line does not tell.

    Raises:
        InputErrors: every mistake found, each with file, line, path and remedy.
    """
    records: list[Any] = []
    sentences: list[str] = []
    for source in _sources(path):
        try:
            records.append(_record(source, class_of))
        except InputErrors as error:
            sentences += error.problems
            if len(sentences) >= MOST_REPORTED:
                break
    if sentences:
        raise PlacedErrors(sentences[:MOST_REPORTED])
    if not records:
        raise PlacedErrors([f"{path}: the file is empty."])
    return tuple(records)


def _sources(path: Path) -> Iterator[Source]:
    """The lines with content, as texts of their own whose names are file and line."""
    for number, line in enumerate(read_text_of(path).split("\n"), 1):
        if line.strip():
            yield Source(f"{path}:{number}", line, "json", {})


def _record(source: Source, class_of: Callable[[Mapping[str, Any]], Any]) -> Any:
    twice: list[tuple[dict[str, Any], str]] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        keys = [key for key, _ in items]
        twice.extend((found, key) for key in found if keys.count(key) > 1)
        return found

    try:
        content = json.loads(source.text, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        raise InputErrors([f"{source.name}: this is not JSON: {error.msg} (column {error.colno})."]) from None
    except (ValueError, RecursionError):
        raise InputErrors([f"{source.name}: this is not JSON that can be read."]) from None
    if not isinstance(content, dict):
        raise InputErrors([f"{source.name}: each line must hold keys and values, as JSON: {{...}}."])
    # The name says the line already: without the text no line is looked up within it.
    line = Source(source.name, "", "json", content)
    strange = survey(content, twice)
    if strange:
        raise line.errors(Mistake(*row) for row in strange)
    try:
        return converter().structure(content, class_of(content))
    except FieldError as error:
        raise line.errors([Mistake(error.steps, error.sentence)]) from None
    except Mistakes as mistakes:
        raise line.errors(mistakes.found) from None
