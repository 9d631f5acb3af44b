"""Files as mappings that remember where things were written."""

import json
import math
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from attrs import frozen

from nest.errors import InputError

LARGEST_FILE = 64 * 2**20
"""Bytes; a larger file is refused unread. A problem with a thousand measured layers takes a few MiB."""

SUFFIXES = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml"}
MOST_REPORTED = 20

Steps = tuple[str | int, ...]


def dotted(steps: Steps) -> str:
    """A path as people write it: `cluster.levels[1].fanout`."""
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


@frozen
class Mistake:
    """One thing that is wrong in a file.

    Attributes:
        steps: the path to it.
        sentence: what is wrong, to follow the path.
        is_key: whether the key itself is wrong, rather than its value.
    """

    steps: Steps
    sentence: str
    is_key: bool = False


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

    def located(self, mistakes: Iterable[Mistake]) -> list[str]:
        """A sentence for each mistake, after its file and line, in the order of the lines."""
        from nest.files.places import line_of

        rows = []
        for mistake in mistakes:
            line = line_of(self, mistake.steps) if self.text else None
            place = ":".join(str(part) for part in (self.name, line) if part)
            where = dotted(mistake.steps)
            told = " ".join(part for part in (where, mistake.sentence) if part)
            rows.append((line or 0, f"{place}: {told}." if place else f"{told}."))
        rows.sort(key=lambda row: row[0])
        sentences = [sentence for _, sentence in rows]
        if len(sentences) > MOST_REPORTED:
            sentences[MOST_REPORTED:] = [f"... and {len(sentences) - MOST_REPORTED} more mistakes."]
        return sentences


def read_source(path: Path) -> Source:
    """The file at `path`.

    Raises:
        InputError: it cannot be read, or is not YAML, JSON or TOML with a mapping at its top.
    """
    try:
        if path.is_dir():
            raise InputError(f"{path}: this is a folder; name a file in it.")
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise InputError(
                f"{path}: the file has {size / 2**20:.0f} MiB, more than the {LARGEST_FILE // 2**20} MiB nest reads."
            )
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file.") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: this is not text in UTF-8; nest reads YAML, JSON and TOML.") from None
    return parse(text, str(path))


def parse(text: str, name: str) -> Source:
    """`text` as a mapping; the suffix of `name` tells the format, else the text's first character.

    Raises:
        InputError: it is not YAML, JSON or TOML with a mapping at its top.
    """
    known = SUFFIXES.get(Path(name).suffix.lower())
    form = known or ("json" if text.lstrip()[:1] == "{" else "yaml")
    if not text.strip():
        raise InputError(f"{name}: the file is empty.")
    try:
        content = {"json": _json, "toml": _toml, "yaml": _yaml}[form](text, name)
    except RecursionError:
        raise InputError(f"{name}: the file is nested too deeply to be read.") from None
    if not isinstance(content, dict):
        raise InputError(f"{name}: expected keys and values at the top of the file, found {_kind(content)}.")
    return Source(name, text, form, content)


def parse_value(text: str) -> Any:
    """`text` as one YAML value.

    Raises:
        InputError: it is not YAML.
    """
    return _yaml(text, text)


def _kind(content: Any) -> str:
    if isinstance(content, list):
        return "a list"
    return "a single word or number" if content is not None else "nothing"


def _json(text: str, name: str) -> Any:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) < len(items):
            keys = [key for key, _ in items]
            repeated = next(key for key in keys if keys.count(key) > 1)
            raise InputError(f"{name}: key {repeated!r} is given twice in one place; keep one.")
        return found

    def constant(word: str) -> NoReturn:
        raise InputError(f"{name}: {word} is not a number nest can use; numbers must be finite.")

    try:
        return json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    except json.JSONDecodeError as error:
        raise InputError(f"{name}:{error.lineno}: this is not JSON: {error.msg} (column {error.colno}).") from None
    except ValueError as error:
        raise InputError(f"{name}: this is not JSON: {error}.") from None


def _toml(text: str, name: str) -> Any:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        place = f"{name}:{found[1]}" if found else name
        reason = str(error).split(" (at ")[0]
        raise InputError(f"{place}: this is not TOML: {reason}.") from None


def _yaml(text: str, name: str) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    reader = YAML(typ="safe", pure=True)
    try:
        content = reader.load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{name}:{mark.line + 1}" if mark is not None else name
        reason = " ".join(str(error.problem or error.context or "it cannot be parsed").split()).rstrip(".")
        raise InputError(f"{place}: this is not YAML: {_short(reason)}.") from None
    except YAMLError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{name}: this is not YAML: {_short(reason)}.") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{name}: this is not YAML: {_short(str(error))}.") from None
    _check_tree(content, name)
    return content


def _short(text: str) -> str:
    return text if len(text) <= 120 else text[:117] + "..."


MOST_VALUES = 5_000_000
"""Values one file may hold; YAML aliases can make more of them than there are bytes."""


def _check_tree(content: Any, name: str) -> None:
    """Refuse aliases that blow up, numbers that are not finite, and keys that are not words."""
    stack, seen = [content], 0
    while stack:
        item = stack.pop()
        seen += 1
        if seen > MOST_VALUES:
            raise InputError(f"{name}: the file holds more than {MOST_VALUES} values, counting what aliases repeat.")
        if isinstance(item, dict):
            for key in item:
                if not isinstance(key, str):
                    raise InputError(f"{name}: key {key!r} is not a word; put it in quotes.")
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
        elif isinstance(item, float) and not math.isfinite(item):
            raise InputError(f"{name}: {item} is not a number nest can use; numbers must be finite.")
