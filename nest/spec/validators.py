"""Validators of records; None always passes, for optional fields.

Each rule also has its JSON schema keywords, so that schemas refuse what records refuse.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from attrs import frozen

from nest.errors import FieldError, FieldErrors, Steps
from nest.io.names import hint
from nest.records import Record
from nest.units import LARGEST_WHOLE

Mistake = tuple[Steps, str]


@frozen(eq=False, repr=False)
class Rule(Record):
    """An attrs validator.

    Attributes:
        mistakes: violations in a value: the path to each (empty for the value itself) and the sentence after the path.
        keywords: JSON schema keywords; `items` stands for every item of a sequence.
    """

    mistakes: Callable[[Any], Iterator[Mistake]]
    keywords: Mapping[str, Any]

    def __call__(self, _: Any, attribute: Any, value: Any) -> None:
        """Raise `FieldErrors` for all violations in `value`."""
        if value is not None:
            errors = [FieldError((attribute.name, *steps), sentence) for steps, sentence in self.mistakes(value)]
            if errors:
                raise FieldErrors(errors)


def _rule(wrong: Callable[[Any], str | None], keywords: Mapping[str, Any]) -> Rule:
    """Rule from a function that returns a fault or None."""

    def mistakes(value: Any) -> Iterator[Mistake]:
        sentence = wrong(value)
        if sentence is not None:
            yield (), sentence

    return Rule(mistakes, keywords)


def _number(inside: Callable[[float], bool], wanted: str, keywords: Mapping[str, Any]) -> Rule:
    def wrong(value: float) -> str | None:
        if isinstance(value, float) and not math.isfinite(value):
            return f"must be a finite number, is {value}"
        if isinstance(value, int) and abs(value) > LARGEST_WHOLE:
            return "is too large: whole numbers go up to 2**53"
        return None if inside(value) else f"must be {wanted}, is {value:g}"

    return _rule(wrong, keywords)


def at_least(least: float) -> Rule:
    """A finite number of at least `least`."""
    return _number(lambda value: value >= least, f"at least {least:g}", {"minimum": least})


def above(bound: float) -> Rule:
    """A finite number above `bound`."""
    return _number(lambda value: value > bound, f"above {bound:g}", {"exclusiveMinimum": bound})


def between(least: float, most: float) -> Rule:
    """A finite number from `least` to `most`."""
    keywords = {"minimum": least, "maximum": most}
    return _number(lambda value: least <= value <= most, f"from {least:g} to {most:g}", keywords)


def degree() -> Rule:
    """A whole number of at least 1; or true, the highest degree possible, or false, 1."""
    return _number(lambda value: isinstance(value, bool) or value >= 1, "at least 1", {"minimum": 1})


def at_least_or(least: int, word: str) -> Rule:
    """A whole number of at least `least`, or `word`."""
    number = at_least(least)

    def mistakes(value: Any) -> Iterator[Mistake]:
        if not isinstance(value, str):
            yield from number.mistakes(value)
        elif value != word:
            yield (), f"must be a whole number of at least {least}, or {word}, is {value!r:.60}"

    return Rule(mistakes, {**number.keywords, "pattern": f"^{word}$"})


def one_of(allowed: Collection[Any]) -> Rule:
    """One of `allowed`; for other words the message names the nearest."""
    options = ", ".join(str(item) for item in allowed)
    must = f"must be one of {options}" if len(allowed) > 1 else f"must be {options}"
    words = [item for item in allowed if isinstance(item, str)]

    def wrong(value: Any) -> str | None:
        if value in allowed:
            return None
        meaning = hint(value, words) if isinstance(value, str) else ""
        return f"{must}, is {value!r:.60}" + (f"; {meaning}" if meaning else "")

    return _rule(wrong, {"enum": list(allowed)})


not_empty: Rule = _rule(
    lambda value: None if len(value) else "must not be empty", {"minItems": 1, "minProperties": 1, "minLength": 1}
)
"""At least one item, key or character."""


def unique(value: Sequence[Any]) -> Iterator[Mistake]:
    """Places of items that equal an earlier one."""
    seen: dict[Any, int] = {}
    for index, item in enumerate(value):
        if item in seen:
            yield (index,), f"is {item!r:.60}, as is the item at [{seen[item]}]; each may be there once"
        else:
            seen[item] = index


all_different = Rule(unique, {"uniqueItems": True})
"""No item twice."""


def including(item: Any) -> Rule:
    """A sequence with `item` in it."""
    return _rule(
        lambda value: None if item in value or not len(value) else f"must include {item}", {"contains": {"const": item}}
    )


def each(rule: Rule, *, none: bool = False) -> Rule:
    """A sequence, or the values of a mapping, whose items all pass `rule`; with `none` items may be None."""

    def mistakes(value: Any) -> Iterator[Mistake]:
        rows: Iterable[tuple[str | int, Any]] = value.items() if isinstance(value, Mapping) else enumerate(value)
        for step, item in rows:
            for steps, sentence in () if none and item is None else rule.mistakes(item):
                yield (step, *steps), sentence

    return Rule(mistakes, {"items": rule.keywords})


def every(*rules: Rule) -> Rule:
    """All of `rules`."""

    def mistakes(value: Any) -> Iterator[Mistake]:
        for rule in rules:
            yield from rule.mistakes(value)

    merged: dict[str, Any] = {}
    for rule in rules:
        merged |= rule.keywords
    return Rule(mistakes, cast("Mapping[str, Any]", merged))
