"""YAML, JSON and TOML: text to content, and lines of values, looked up for messages only."""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import Any

from nest.errors import Steps

LARGEST_YAML = 8 * 2**20
"""Characters of YAML, which ruamel.yaml reads at 0.2 to 0.4 MB/s (measured on lists of numbers and on keys)."""

MOST_MERGED = 100_000  # Keys that YAML's merge keys may copy; people merge a few dozen.

MOST_OPEN = 1000
"""Brackets that YAML may have open at once, also quoted ones: ruamel.yaml visits them all for each token."""

Repeated = list[tuple[dict[str, Any], str]]  # Mappings of a text, each with a key it repeats.
Trie = dict[str | int, Any]  # Paths by their steps: the empty mapping ends one.


class UnreadableError(Exception):
    """A text is not in its format; `line` counts from 1, or is None."""

    def __init__(self, sentence: str, line: int | None = None) -> None:
        self.line = line
        super().__init__(sentence)


def content_of(text: str, form: str, repeated: Repeated) -> Any:
    """Parse `text` of the format `form`: `yaml`, `json` or `toml`.

    Raises:
        UnreadableError: it is not in this format.
        RecursionError: it is nested too deeply.
    """
    return _FORMATS[form][0](text, repeated)


def json_content(text: str, repeated: Repeated) -> Any:
    """Parse JSON; mappings with repeated keys join `repeated`.

    Raises:
        ValueError: it is not JSON, or holds a number of too many digits.
    """

    def pairs(items: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(items)
        if len(mapping) < len(items):
            counts = Counter(key for key, _ in items)
            repeated.extend((mapping, key) for key in mapping if counts[key] > 1)
        return mapping

    return json.loads(text, object_pairs_hook=pairs)


def _json(text: str, repeated: Repeated) -> Any:
    try:
        return json_content(text, repeated)
    except json.JSONDecodeError as error:
        raise UnreadableError(f"this is not JSON: {error.msg} (column {error.colno})", error.lineno) from None
    except ValueError as error:
        raise UnreadableError(f"this is not JSON: {_short(str(error))}") from None


def _toml(text: str, _: object) -> Any:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        reason = str(error).split(" (at ")[0]
        if reason.startswith("Cannot "):  # overwrite a value, declare a table twice, ...
            reason += "; give each key once"
        raise UnreadableError(f"this is not TOML: {reason}", int(match[1]) if match else None) from None
    except ValueError as error:
        raise UnreadableError(f"this is not TOML: {_short(str(error))}") from None


def _yaml(text: str, _: object) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.constructor import DuplicateKeyError
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    if len(text) > LARGEST_YAML:
        raise UnreadableError(
            f"YAML files may have {LARGEST_YAML // 2**20} MiB, this has {len(text) / 2**20:.0f}; write it as "
            "JSON, which loads much faster"
        )
    if _deepest(text) > MOST_OPEN:
        raise RecursionError
    try:
        reader = YAML(typ="safe", pure=True)
        reader.Constructor = _bounded_constructor()
        return reader.load(text)
    except DuplicateKeyError as error:
        key = re.search(r'duplicate key "(.{1,60})', str(error.problem))
        name = key[1].split('" with value')[0] if key else ""
        raise UnreadableError(f"key {name!r} is given twice in one place; keep one", _line(error)) from None
    except MarkedYAMLError as error:
        reason = error.problem or error.context or "it cannot be parsed"
        raise UnreadableError(f"this is not YAML: {_short(reason)}", _line(error)) from None
    except (YAMLError, ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError) as error:
        raise UnreadableError(f"this is not YAML: {_short(str(error))}") from None


def _deepest(text: str) -> int:
    """Return the most brackets open at once, quoted ones included."""
    depth = deepest = 0
    for bracket in re.findall(r"[][{}]", text):
        depth = depth + 1 if bracket in "[{" else max(depth - 1, 0)
        deepest = max(deepest, depth)
    return deepest


@cache
def _bounded_constructor() -> Any:
    """Return ruamel.yaml's constructor with a limit on the copies of merge keys.

    A merge copies keys merged elsewhere, too: nested merges grow exponentially.
    """
    from ruamel.yaml.constructor import ConstructorError, SafeConstructor

    class Bounded(SafeConstructor):
        merged = 0

        def flatten_mapping(self, node: Any) -> Any:
            given = len(node.value)
            merge_map = super().flatten_mapping(node)
            self.merged += max(len(node.value) - given, 0)
            if self.merged > MOST_MERGED:
                sentence = f"merge keys (<<) repeat more than {MOST_MERGED} keys"
                raise ConstructorError(None, None, sentence, node.start_mark)
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


def lines_of(text: str, form: str, paths: Sequence[Steps]) -> list[int | None]:
    """Return the line (from 1) of each path, or of its deepest existing part."""
    if not text:
        return [None] * len(paths)
    lines: dict[Steps, int] = {}
    trie: Trie = {}
    for steps in paths:
        below = trie
        for step in steps:
            below = below.setdefault(step, {})
    try:
        for steps, line in _FORMATS[form][1](text, trie):
            lines[steps] = line
    except Exception:  # A text that was read once but cannot be followed only loses its line numbers.
        lines = {}
    return [next((lines[s[:n]] for n in range(len(s), 0, -1) if s[:n] in lines), None) for s in paths]


def _yaml_lines(text: str, trie: Trie) -> Iterator[tuple[Steps, int]]:
    """Yield existing paths of `trie` with their lines."""
    stack: list[tuple[Any, Trie, Steps]] = [(_tree(text), trie, ())]
    while stack:
        node, wanted, steps = stack.pop()
        kind = getattr(node, "id", "")
        rows: list[tuple[str | int, Any, Any]] = []
        if kind == "sequence":
            rows = [(step, node.value[step], node.value[step]) for step in wanted if _is_index(step, node.value)]
        elif kind == "mapping":
            rows = [(key.value, key, value) for key, value in node.value if key.value in wanted]
        for step, marked, below in rows:
            yield (*steps, step), marked.start_mark.line + 1
            stack.append((below, wanted[step], (*steps, step)))


def _is_index(step: str | int, items: Sequence[Any]) -> bool:
    return isinstance(step, int) and step < len(items)


@lru_cache(maxsize=1)
def _tree(text: str) -> Any:
    from ruamel.yaml import YAML

    return YAML(typ="safe", pure=True).compose(text)


_SPACE = re.compile(r"[ \t\r\n]*")
_DECODE = json.JSONDecoder().raw_decode


def _json_lines(text: str, trie: Trie) -> Iterator[tuple[Steps, int]]:
    line, counted = 1, 0
    for steps, position in _json_positions(text, _skip(text, 0), trie, ()):
        line, counted = line + text.count("\n", counted, position), position
        yield steps, line


def _json_positions(text: str, start: int, wanted: Trie, steps: Steps) -> Iterator[tuple[Steps, int]]:
    """Yield paths of `wanted` below the value at `start` with their places; other values are decoded in one go."""
    closing = {"{": "}", "[": "]"}.get(text[start])
    position, index = _skip(text, start + 1), 0
    while closing is not None and text[position] != closing:
        step: str | int = index
        key_position = position
        if closing == "}":
            step, position = _DECODE(text, position)
            position = _skip(text, _skip(text, position) + 1)
        if step in wanted:
            yield (*steps, step), key_position
            if wanted[step]:
                yield from _json_positions(text, position, wanted[step], (*steps, step))
        position = _skip(text, _DECODE(text, position)[1])
        if text[position] == ",":
            position = _skip(text, position + 1)
        index += 1


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


_HEADER = r"\s*(\[\[?)\s*([^\[\]#]+?)\s*\]\]?\s*(#.*)?"
_ASSIGNMENT = r"\s*([\w\"'.\- ]+?)\s*="


def _toml_lines(text: str, trie: Trie) -> Iterator[tuple[Steps, int]]:
    """Yield paths of `trie` in headers and assignments with their lines; inline values count for their key."""
    table: Steps = ()
    counts: dict[Steps, int] = {}
    seen: set[Steps] = set()
    for number, line in enumerate(text.splitlines(), 1):
        header, assignment = re.fullmatch(_HEADER, line), re.match(_ASSIGNMENT, line)
        if header:
            table = _within(_names(header[2]), counts)
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = (*table, counts[table])
        named = table if header else (*table, *_names(assignment[1])) if assignment else ()
        for steps in (named[:length] for length in range(1, len(named) + 1)):
            if steps not in seen and _holds(trie, steps):
                seen.add(steps)
                yield steps, number


def _names(text: str) -> Steps:
    return tuple(part.strip().strip("\"'") for part in text.split("."))


def _within(names: Steps, counts: dict[Steps, int]) -> Steps:
    """Return a header's names, with the latest index after each array of tables on the way."""
    steps: Steps = ()
    for position, name in enumerate(names):
        steps = (*steps, name)
        if steps in counts and position < len(names) - 1:
            steps = (*steps, counts[steps])
    return steps


def _holds(trie: Trie, steps: Steps) -> bool:
    for step in steps:
        if step not in trie:
            return False
        trie = trie[step]
    return True


_FORMATS = {"yaml": (_yaml, _yaml_lines), "json": (_json, _json_lines), "toml": (_toml, _toml_lines)}
"""Reader and finder of lines of each format."""
