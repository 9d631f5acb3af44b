"""The lines on which things were written, looked up only when a message needs them."""

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from nest.errors import Steps

Trie = dict[str | int, Any]
"""Paths by their steps: the empty mapping ends one."""


def lines_of(text: str, form: str, paths: Sequence[Steps]) -> list[int | None]:
    """The line (from 1) of what each path leads to, or of the deepest part of the way that is there."""
    if not text:
        return [None] * len(paths)
    lines: dict[Steps, int] = {}
    trie: Trie = {}
    for steps in paths:
        below = trie
        for step in steps:
            below = below.setdefault(step, {})
    try:
        for steps, line in _FINDERS[form](text, trie):
            lines[steps] = line
    except Exception:  # A text that was read once but cannot be followed only loses its line numbers.
        lines = {}
    return [next((lines[s[:n]] for n in range(len(s), 0, -1) if s[:n] in lines), None) for s in paths]


def _yaml_lines(text: str, trie: Trie) -> Iterator[tuple[Steps, int]]:
    """Paths of `trie` that are there, with their lines."""
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
    """Paths of `trie` that are there, with their lines; of a key given twice, the later one's."""
    line, counted = 1, 0
    for steps, position in _json_positions(text, _skip(text, 0), trie, ()):
        line, counted = line + text.count("\n", counted, position), position
        yield steps, line


def _json_positions(text: str, start: int, wanted: Trie, steps: Steps) -> Iterator[tuple[Steps, int]]:
    """Paths of `wanted` below the value at `start` with their places; what nobody wants is decoded in one go."""
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
    found = _SPACE.match(text, position)
    return found.end() if found else position


_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]#]+?)\s*\]\]?\s*(#.*)?")
_ASSIGNMENT = re.compile(r"\s*([\w\"'.\- ]+?)\s*=")


def _toml_lines(text: str, trie: Trie) -> Iterator[tuple[Steps, int]]:
    """Paths of `trie` that headers and assignments name, with their lines; inline values count for their key."""
    table: Steps = ()
    counts: dict[Steps, int] = {}
    seen: set[Steps] = set()
    for number, line in enumerate(text.splitlines(), 1):
        header, assignment = _HEADER.fullmatch(line), _ASSIGNMENT.match(line)
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
    """A header's names, with the latest index after each array of tables it passes through."""
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


_FINDERS = {"yaml": _yaml_lines, "json": _json_lines, "toml": _toml_lines}
