"""What a text may say in its own format, but no file of nest may hold."""

import math
from collections.abc import Iterable
from typing import Any

import attrs

from nest.errors import Steps

DEEPEST = 100
"""Levels of nesting; a plan with its problem has 10."""

MOST_VALUES = 5_000_000
"""Values one file may hold, counting what aliases repeat, of which YAML can make more than there are bytes. A
thousand measured layers under 300 candidates are 4.5 million."""

Finding = tuple[Steps, str]


def survey(content: Any, repeated: Iterable[tuple[dict[str, Any], str]]) -> list[Finding]:
    """Paths and what is wrong there: numbers that are not finite, keys that are not words, keys given twice, ...

    Args:
        content: as parsed.
        repeated: mappings in it, each with a key that the text gives it more than once.
    """
    walk = _Walk()
    size = walk.visit(content, ())
    if size > MOST_VALUES:
        walk.findings.append(((), f"this holds more than {MOST_VALUES} values, counting what aliases repeat"))
    found = [
        ((*walk.paths[id(mapping)], key), "is given twice in one place; keep one")
        for mapping, key in repeated
        if id(mapping) in walk.paths
    ]
    return [*walk.findings, *found]


class _Walk:
    """One pass over a tree; what aliases share is visited once.

    Attributes:
        findings: what was found so far.
        paths: the first path to each list and mapping, by its identity.
    """

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.paths: dict[int, Steps] = {}
        self._sizes: dict[int, int] = {}

    def visit(self, item: Any, steps: Steps) -> int:
        """The number of values in `item`."""
        if not isinstance(item, (dict, list, tuple)):
            self._leaf(item, steps)
            return 1
        known = self._sizes.get(id(item))
        if known is not None:
            return known
        if id(item) in self.paths:
            self.findings.append((steps, "contains itself"))
            return 1
        self.paths[id(item)] = steps
        if len(steps) >= DEEPEST:
            self._sizes[id(item)] = 1
            self.findings.append((steps[:3], f"is nested more than {DEEPEST} levels deep"))
            return 1
        size = self._mapping(item, steps) if isinstance(item, dict) else self._sequence(item, steps)
        self._sizes[id(item)] = size
        return size

    def _mapping(self, item: dict[Any, Any], steps: Steps) -> int:
        size = 1
        for key, value in item.items():
            if isinstance(key, str):
                self._leaf(key, steps)
                size += self.visit(value, (*steps, key))
            else:
                self.findings.append((steps, f"has the key {key!r:.60}, which is not a word; put it in quotes"))
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
        """Note what is wrong with a single value."""
        if isinstance(item, float):
            if not math.isfinite(item):
                self.findings.append((steps, f"must be a finite number, is {item}"))
        elif isinstance(item, str):
            if not item.isascii() and any("\ud800" <= letter <= "\udfff" for letter in item):
                self.findings.append((steps, "holds half a character (a lone surrogate)"))
        elif item is not None and not isinstance(item, int) and not attrs.has(type(item)):
            kind = {"date": "a date", "datetime": "a date", "time": "a time of day"}.get(type(item).__name__)
            told = kind or f"of the kind {type(item).__name__}"
            self.findings.append((steps, f"is {told}; only text, numbers, true, false, lists and keys can be read"))
