"""Texts as mappings that remember where things were written."""

import json
import re
import sys
import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from attrs import frozen

from nest.errors import InputErrors, PlacedErrors, Steps, dotted
from nest.io.places import lines_of
from nest.io.survey import survey

LARGEST_FILE = 64 * 2**20
"""Bytes; a larger file is refused unread. A problem with a thousand measured layers takes a few MiB."""

LARGEST_YAML = 8 * 2**20
"""Characters of YAML, which ruamel.yaml reads at 0.2 to 0.4 MB/s (measured on lists of numbers and on keys)."""

MOST_MERGED = 100_000
"""Keys that YAML's merge keys may copy; what people write merges a few dozen."""

STANDARD_INPUT = Path("-")
"""Stands for what is piped to a command."""

SUFFIXES = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml"}
MOST_REPORTED = 20


@frozen
class Mistake:
    """One thing that is wrong in a text.

    Attributes:
        steps: the path to it.
        sentence: what is wrong, to follow the path.
    """

    steps: Steps
    sentence: str


@frozen
class Source:
    """A text read as a mapping.

    Attributes:
        name: the file's, for messages; empty for a mapping from elsewhere.
        text: its content.
        format: `yaml`, `json` or `toml`.
        mapping: what it says.
    """

    name: str
    text: str
    format: str
    mapping: dict[str, Any]

    def lines(self, paths: Sequence[Steps]) -> list[int | None]:
        """The line (from 1) of what each path leads to, or of the deepest part of the way that is there."""
        return lines_of(self.text, self.format, paths)

    def errors(self, mistakes: Iterable[Mistake]) -> InputErrors:
        """A sentence for each mistake, after its file and line, in the order of the lines."""
        found = list(dict.fromkeys(mistakes))
        lines = self.lines([mistake.steps for mistake in found])
        ordered = sorted(zip(lines, found, strict=True), key=lambda row: row[0] or 0)
        sentences = [self._sentence(line, mistake) for line, mistake in ordered[:MOST_REPORTED]]
        if len(ordered) > MOST_REPORTED:
            sentences.append(f"{self.name}: ... and {len(ordered) - MOST_REPORTED} more mistakes.".removeprefix(": "))
        return PlacedErrors(sentences) if self.name else InputErrors(sentences)

    def _sentence(self, line: int | None, mistake: Mistake) -> str:
        place = ":".join(str(part) for part in (self.name, line) if part)
        told = " ".join(part for part in (dotted(mistake.steps), mistake.sentence) if part)
        ended = told if told.endswith("?") else f"{told}."
        return f"{place}: {ended}" if place else ended


def read_source(path: Path, listed: str = "") -> Source:
    """The file at `path`.

    Args:
        path: of the file.
        listed: the key under which a list at its top is returned; empty: there must be a mapping.

    Raises:
        InputError: it cannot be read, or is not YAML, JSON or TOML with a mapping at its top.
    """
    return parse(read_text_of(path), shown(path), listed)


def shown(path: Path) -> str:
    """How messages call a file: its path, or `<stdin>`."""
    return "<stdin>" if path == STANDARD_INPUT else str(path)


def read_text_of(path: Path) -> str:
    """What the file at `path` says; `-` is standard input, which is read once and then remembered.

    Raises:
        InputError: it cannot be read, is too large, or is not text.
    """
    if path == STANDARD_INPUT:
        return _standard_input()
    try:
        if path.is_dir():
            raise PlacedErrors([f"{path}: this is a folder; name a file in it."])
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise PlacedErrors([f"{path}: the file has {size / 2**20:.0f} MiB, more than the {_LARGEST} nest reads."])
        with path.open("rb") as stream:
            data = stream.read(LARGEST_FILE + 1)  # A device or a pipe says nothing of its size beforehand.
    except FileNotFoundError:
        raise PlacedErrors([f"{path}: there is no such file."]) from None
    except (OSError, ValueError) as error:
        raise PlacedErrors([f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}."]) from None
    return _text(data, path)


def _text(data: bytes, path: Path) -> str:
    if len(data) > LARGEST_FILE:
        raise PlacedErrors([f"{shown(path)}: this has more than the {_LARGEST} nest reads."])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise PlacedErrors([f"{shown(path)}: this is not text in UTF-8; nest reads YAML, JSON and TOML."]) from None


_read: list[tuple[object, str]] = []
"""The standard input that was read, and what it said: commands read their file more than once."""


def _standard_input() -> str:
    if sys.stdin is None:  # The caller has closed it.
        raise PlacedErrors(["<stdin>: there is no standard input."])
    if not _read or _read[0][0] is not sys.stdin:
        try:
            data = sys.stdin.buffer.read(LARGEST_FILE + 1)
        except (OSError, ValueError) as error:
            raise PlacedErrors([f"<stdin>: cannot be read: {getattr(error, 'strerror', None) or error}."]) from None
        _read[:] = [(sys.stdin, _text(data, STANDARD_INPUT))]
    return _read[0][1]


_LARGEST = f"{LARGEST_FILE // 2**20} MiB"


def parse(text: str, name: str, listed: str = "") -> Source:
    """`text` as a mapping; the suffix of `name` tells the format, else how the text begins.

    Args:
        text: of a file.
        name: of the file.
        listed: as in `read_source`.

    Raises:
        InputError: it is not YAML, JSON or TOML with a mapping at its top, or holds what no format shares.
    """
    known = SUFFIXES.get(Path(name).suffix.lower())
    form = known or _likely_format(text)
    if not text.strip():
        raise PlacedErrors([f"{name}: the file is empty."])
    repeated: list[tuple[dict[str, Any], str]] = []
    try:
        content = {"json": _json, "toml": _toml, "yaml": _yaml}[form](text, repeated)
    except _UnreadableError as error:
        place = f"{name}:{error.line}" if error.line is not None else name
        raise PlacedErrors([f"{place}: {error}."]) from None
    except RecursionError:
        raise PlacedErrors([f"{name}: the file is nested too deeply to be read."]) from None
    if listed and isinstance(content, list):
        content = {listed: content}
    if not isinstance(content, dict):
        raise PlacedErrors([f"{name}: expected keys and values at the top of the file, found {_kind(content)}."])
    source = Source(name, text, form, content)
    mistakes = [Mistake(*row) for row in survey(content, repeated)]
    if mistakes:
        raise source.errors(mistakes)
    return source


_TOML_BEGINS = re.compile(r"(?:\s|#[^\n]*\n)*+(?:[\w.-]+[ \t]*=|\[+[ \t]*[\w.-]+[ \t]*\]+[ \t]*(?:#|\n))")
"""Blank lines and comments, then an assignment or the header of a table."""


def _likely_format(text: str) -> str:
    if text.lstrip()[:1] == "{":
        return "json"
    return "toml" if _TOML_BEGINS.match(text) else "yaml"


def read_value(text: str) -> Any:
    """`text` as one YAML value.

    Raises:
        InputError: it is not YAML.
    """
    try:
        content = _yaml(text, [])
    except _UnreadableError as error:
        raise InputErrors([f"{text!r:.60}: {error}."]) from None
    except RecursionError:
        raise InputErrors([f"{text!r:.60}: this is nested too deeply to be read."]) from None
    mistakes = survey(content, [])
    if mistakes:
        raise InputErrors(
            [" ".join(f"{text!r:.60}: {dotted(steps)} {sentence}.".split()) for steps, sentence in mistakes]
        )
    return content


class _UnreadableError(Exception):
    """A text is not in its format.

    Attributes:
        line: where, from 1; None: unknown.
    """

    def __init__(self, sentence: str, line: int | None = None) -> None:
        self.line = line
        super().__init__(sentence)


def _kind(content: Any) -> str:
    if isinstance(content, list):
        return "a list"
    return "a single word or number" if content is not None else "nothing"


def _json(text: str, repeated: list[tuple[dict[str, Any], str]]) -> Any:
    def pairs(items: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) < len(items):
            seen: set[str] = set()
            repeated.extend((found, key) for key, _ in items if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        return found

    try:
        return json.loads(text, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        raise _UnreadableError(f"this is not JSON: {error.msg} (column {error.colno})", error.lineno) from None
    except ValueError as error:
        raise _UnreadableError(f"this is not JSON: {_short(str(error))}") from None


def _toml(text: str, _: object) -> Any:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        reason = str(error).split(" (at ")[0]
        if reason.startswith("Cannot "):  # overwrite a value, declare a table twice, ...
            reason += "; give each key once"
        raise _UnreadableError(f"this is not TOML: {reason}", int(found[1]) if found else None) from None
    except ValueError as error:
        raise _UnreadableError(f"this is not TOML: {_short(str(error))}") from None


def _yaml(text: str, _: object) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.constructor import DuplicateKeyError
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    if len(text) > LARGEST_YAML:
        raise _UnreadableError(
            f"YAML is read up to {LARGEST_YAML // 2**20} MiB, this has {len(text) / 2**20:.0f}; "
            "write it as JSON, which is read much faster"
        )
    try:
        reader = YAML(typ="safe", pure=True)
        reader.Constructor = _bounded_constructor()
        return reader.load(text)
    except DuplicateKeyError as error:
        key = re.search(r'duplicate key "(.{1,60})', str(error.problem))
        told = key[1].split('" with value')[0] if key else ""
        raise _UnreadableError(f"key {told!r} is given twice in one place; keep one", _line(error)) from None
    except MarkedYAMLError as error:
        reason = error.problem or error.context or "it cannot be parsed"
        raise _UnreadableError(f"this is not YAML: {_short(reason)}", _line(error)) from None
    except (YAMLError, ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError) as error:
        raise _UnreadableError(f"this is not YAML: {_short(str(error))}") from None


@cache
def _bounded_constructor() -> Any:
    """ruamel.yaml's constructor, which stops when merge keys have copied too much.

    A merge copies the keys of what it names, those merged there included: ten merges of ten merges and so on would
    never end.
    """
    from ruamel.yaml.constructor import ConstructorError, SafeConstructor

    class Bounded(SafeConstructor):
        merged = 0

        def flatten_mapping(self, node: Any) -> Any:
            given = len(node.value)
            merge_map = super().flatten_mapping(node)
            self.merged += max(len(node.value) - given, 0)
            if self.merged > MOST_MERGED:
                told = f"merge keys (<<) repeat more than {MOST_MERGED} keys"
                raise ConstructorError(None, None, told, node.start_mark)
            return merge_map

    return Bounded


def _line(error: Any) -> int | None:
    mark = error.problem_mark or error.context_mark
    return int(mark.line) + 1 if mark is not None else None


def _short(text: str) -> str:
    if "integer string conversion" in text:
        return "a whole number has more than 4300 digits"
    if "character '\\t'" in text:
        return "it is indented with a tab; indent with spaces"
    words = " ".join(text.split()).rstrip(".")
    return words if len(words) <= 120 else words[:117] + "..."


def is_file_name(name: str) -> bool:
    """Whether figures are given as a file of their own and not by a name of the catalogue."""
    return "/" in name or Path(name).suffix in SUFFIXES
