"""Texts as mappings that remember the lines of values."""

import math
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import attrs

from nest.errors import FieldError, InputErrors, PlacedErrors, Steps
from nest.io.formats import Repeated, UnreadableError, content_of, lines_of
from nest.units import displayed

LARGEST_FILE = 64 * 2**20  # Bytes of the largest file read. A problem with a thousand measured layers takes a few MiB.
DEEPEST = 100  # Levels of nesting; a plan with its problem has 10.

MOST_VALUES = 5_000_000
"""Values of one file, repetitions by aliases included, of which YAML can make more than there are bytes. A thousand
measured layers under 300 candidates are 4.5 million."""

STANDARD_INPUT = Path("-")  # Stands for the pipe to a command.
MOST_DIGITS = 300  # Digits in a row; no float holds a number of 309.

SUFFIXES = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml"}
MOST_REPORTED = 20


class Source(NamedTuple):
    """A text of `format` yaml, json or toml, read as a mapping; `name` is the file's, or empty."""

    name: str
    text: str
    format: str
    mapping: dict[str, Any]

    def lines(self, paths: Sequence[Steps]) -> list[int | None]:
        """Return the line (from 1) of each path, or of its deepest existing part."""
        return lines_of(self.text, self.format, paths)

    def errors(self, mistakes: Iterable[FieldError]) -> InputErrors:
        """Return a sentence for each mistake, after its file and line, in line order."""
        unique = list({(mistake.steps, mistake.sentence): mistake for mistake in mistakes}.values())
        lines = self.lines([mistake.steps for mistake in unique])
        ordered = sorted(zip(lines, unique, strict=True), key=lambda row: row[0] or 0)
        sentences = [self._sentence(line, mistake) for line, mistake in ordered[:MOST_REPORTED]]
        if len(ordered) > MOST_REPORTED:
            sentences.append(f"{self.name}: ... and {len(ordered) - MOST_REPORTED} more mistakes.".removeprefix(": "))
        return PlacedErrors(sentences) if self.name else InputErrors(sentences)

    def _sentence(self, line: int | None, mistake: FieldError) -> str:
        place = ":".join(str(part) for part in (self.name, line) if part)
        ended = str(mistake) if mistake.sentence.endswith("?") else f"{mistake}."
        return f"{place}: {ended}" if place else ended


def read_mapping(path: Path, listed: str = "") -> Source:
    """Read the file at `path` (`-`: standard input) as a mapping that remembers its lines.

    A list at its top is returned under the key `listed`, unless that is empty.

    Raises:
        InputError: it cannot be read, or is not YAML, JSON or TOML with a mapping at its top.
    """
    path = Path(path)
    return parse(read_text_of(path), display_path(path), listed)


def display_path(path: Path) -> str:
    """Return a file's name in messages: its path, or `<stdin>`."""
    return "<stdin>" if path == STANDARD_INPUT else str(path)


FileState = tuple[int, int] | None  # Time of the last write, nanoseconds since 1970, and bytes; None: there is no file.
_noting: list[dict[Path, FileState]] = []  # Listeners for the files read.


@contextmanager
def files_read() -> Iterator[dict[Path, FileState]]:
    """Note the files read within the block, with their states before."""
    files: dict[Path, FileState] = {}
    _noting.append(files)
    try:
        yield files
    finally:
        _noting.pop()


def file_state(path: Path) -> FileState:
    """Return the state of the file at `path`, which changes when it is written."""
    try:
        state = path.stat()
    except (OSError, ValueError):
        return None
    return state.st_mtime_ns, state.st_size


def read_text_of(path: Path) -> str:
    """Read the text at `path`; `-` is standard input. It and pipes of the shell are read once and remembered.

    Raises:
        InputError: it cannot be read, is too large, or is not text.
    """
    if path == STANDARD_INPUT:
        return _standard_input()
    for files in _noting:
        files.setdefault(path, file_state(path))
    try:
        if path.is_dir():
            raise PlacedErrors([f"{path}: this is a folder; name a file in it."])
        state = path.stat()
        size, pipe = state.st_size, (state.st_dev, state.st_ino) if _empties(path, state.st_mode) else None
        if pipe in _pipes:
            return _pipes[pipe]
        if size > LARGEST_FILE:
            raise PlacedErrors([f"{path}: the file has {size / 2**20:.0f} MiB, more than the {_LARGEST} nest reads."])
        with path.open("rb") as stream:
            data = stream.read(LARGEST_FILE + 1)  # A device or a pipe says nothing of its size beforehand.
    except FileNotFoundError:
        raise PlacedErrors([f"{path}: there is no such file."]) from None
    except (OSError, ValueError) as error:
        raise PlacedErrors([f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}."]) from None
    text = _text(data, path)
    if pipe is not None:
        _pipes[pipe] = text
    return text


_pipes: dict[tuple[int, int] | None, str] = {}
"""Texts of pipes of the shell, by device and inode: a second reading finds nothing."""


def _empties(path: Path, mode: int) -> bool:
    """Return whether a file is an anonymous pipe, such as `<(command)` and `/dev/stdin`."""
    return stat.S_ISFIFO(mode) and path.is_absolute() and path.parts[1] in ("dev", "proc")


def _text(data: bytes, path: Path) -> str:
    if len(data) > LARGEST_FILE:
        raise PlacedErrors([f"{display_path(path)}: this has more than the {_LARGEST} nest reads."])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise PlacedErrors(
            [f"{display_path(path)}: this is not text in UTF-8; nest reads YAML, JSON and TOML."]
        ) from None
    if _TOO_LONG.search(text):
        raise PlacedErrors([f"{display_path(path)}: a number has more than {MOST_DIGITS} digits."])
    return text


_TOO_LONG = re.compile(rf"(?<!\d)\d{{{MOST_DIGITS}}}")


_read: list[tuple[object, str]] = []  # The standard input and its text: commands read their file more than once.

_READING = Lock()


def _standard_input() -> str:
    if sys.stdin is None:  # The caller has closed it.
        raise PlacedErrors(["<stdin>: there is no standard input."])
    with _READING:
        if not _read or _read[0][0] is not sys.stdin:
            try:
                data = sys.stdin.buffer.read(LARGEST_FILE + 1)
            except (OSError, ValueError) as error:
                raise PlacedErrors([f"<stdin>: cannot be read: {getattr(error, 'strerror', None) or error}."]) from None
            _read[:] = [(sys.stdin, _text(data, STANDARD_INPUT))]
        return _read[0][1]


_LARGEST = f"{LARGEST_FILE // 2**20} MiB"


def parse(text: str, name: str, listed: str = "") -> Source:
    """Parse `text` as `read_mapping` does; the suffix of `name` tells the format, else its beginning.

    Raises:
        InputError: it is not YAML, JSON or TOML with a mapping at its top, or holds values not shared by all formats.
    """
    form = SUFFIXES.get(Path(name).suffix.lower()) or _likely_format(text)
    if not text.strip():
        raise PlacedErrors([f"{name}: the file is empty."])
    repeated: Repeated = []
    try:
        content = content_of(text, form, repeated)
    except UnreadableError as error:
        place = f"{name}:{error.line}" if error.line is not None else name
        raise PlacedErrors([f"{place}: {error}."]) from None
    except RecursionError:
        raise PlacedErrors([f"{name}: the file is nested too deeply to be read."]) from None
    if listed and isinstance(content, list):
        content = {listed: content}
    if not isinstance(content, dict):
        raise PlacedErrors([f"{name}: expected keys and values at the top of the file, found {_kind(content)}."])
    source = Source(name, text, form, content)
    if mistakes := survey(content, repeated):
        raise source.errors(mistakes)
    return source


_TOML_BEGINS = r"(?:\s|#[^\n]*\n)*+(?:[\w.-]+[ \t]*=|\[+[ \t]*[\w.-]+[ \t]*\]+[ \t]*(?:#|\n))"
"""Blank lines and comments, then an assignment or the header of a table."""


def _likely_format(text: str) -> str:
    if text.lstrip()[:1] == "{":
        return "json"
    return "toml" if re.match(_TOML_BEGINS, text) else "yaml"


def read_value(text: str) -> Any:
    """Parse `text` as one YAML value.

    Raises:
        InputError: it is not YAML.
    """
    try:
        content = content_of(text, "yaml", [])
    except UnreadableError as error:
        raise InputErrors([f"{text!r:.60}: {error}."]) from None
    except RecursionError:
        raise InputErrors([f"{text!r:.60}: this is nested too deeply to be read."]) from None
    if mistakes := survey(content, []):
        raise InputErrors([" ".join(f"{text!r:.60}: {each}.".split()) for each in mistakes])
    return content


def _kind(content: Any) -> str:
    if isinstance(content, list):
        return "a list"
    return "a single word or number" if content is not None else "nothing"


def survey(content: Any, repeated: Repeated) -> list[FieldError]:
    """Return contents forbidden in all files of nest: infinite numbers, keys that are no words, repeated keys, ..."""
    walk = _Walk()
    size = walk.visit(content, ())
    if size > MOST_VALUES:
        walk.findings.append(FieldError((), f"this holds more than {MOST_VALUES} values, counting what aliases repeat"))
    problems = [
        FieldError((*walk.paths[id(mapping)], key), "is given twice in one place; keep one")
        for mapping, key in repeated
        if id(mapping) in walk.paths
    ]
    return [*walk.findings, *problems]


class _Walk:
    """One pass over a tree that collects findings and the first path to each list and mapping, by identity.

    Values shared by aliases are visited once. Model configurations may have infinite numbers, and numbers for keys, in
    what no one reads.
    """

    def __init__(self) -> None:
        self._of_model = False
        self.findings: list[FieldError] = []
        self.paths: dict[int, Steps] = {}
        self._sizes: dict[int, int] = {}

    def visit(self, item: Any, steps: Steps) -> int:
        """Return the number of values in `item`."""
        if not isinstance(item, (dict, list, tuple)):
            self._leaf(item, steps)
            return 1
        known = self._sizes.get(id(item))
        if known is not None:
            return known
        if id(item) in self.paths:
            self.findings.append(FieldError(steps, "contains itself"))
            return 1
        self.paths[id(item)] = steps
        if len(steps) >= DEEPEST:
            self._sizes[id(item)] = 1
            self.findings.append(FieldError(steps[:3], f"is nested more than {DEEPEST} levels deep"))
            return 1
        size = self._mapping(item, steps) if isinstance(item, dict) else self._sequence(item, steps)
        self._sizes[id(item)] = size
        return size

    def _mapping(self, item: dict[Any, Any], steps: Steps) -> int:
        size = 1
        outer, self._of_model = self._of_model, self._of_model or "model_type" in item
        for key, value in item.items():
            if isinstance(key, str) or (self._of_model and type(key) is int):
                self._leaf(key, steps)
                size += self.visit(value, (*steps, key))
            else:
                self.findings.append(FieldError(steps, f"has the key {key!r:.60}, which is not text; put it in quotes"))
        self._of_model = outer
        return size

    def _sequence(self, items: Iterable[Any], steps: Steps) -> int:
        size = 1
        for index, item in enumerate(items):
            if type(item) is float and math.isfinite(item):
                size += 1
            else:
                size += self.visit(item, (*steps, index))
        return size

    def _leaf(self, item: Any, steps: Steps) -> None:
        """Note the mistakes in a single value."""
        if isinstance(item, (float, int)):
            endless = self._of_model and isinstance(item, float)
            if (
                not endless and not abs(item) <= sys.float_info.max
            ):  # Hexadecimal numbers of YAML and TOML may be as large.
                self.findings.append(FieldError(steps, f"must be a finite number, is {displayed(item)}"))
        elif isinstance(item, str):
            if not item.isascii() and any("\ud800" <= letter <= "\udfff" for letter in item):
                self.findings.append(FieldError(steps, "holds half a character (a lone surrogate)"))
        elif item is not None and not attrs.has(type(item)):
            kind = {"date": "a date", "datetime": "a date", "time": "a time of day"}.get(type(item).__name__)
            kind_text = kind or f"of the kind {type(item).__name__}"
            sentence = f"is {kind_text}; only text, numbers, true, false, lists and keys can be read"
            self.findings.append(FieldError(steps, sentence))


def is_file_name(name: str) -> bool:
    """Return whether figures are given as a file, not by a name of the catalogue."""
    return "/" in name or Path(name).suffix in SUFFIXES
