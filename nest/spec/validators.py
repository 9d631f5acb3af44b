"""What values of a record may be; None always passes, for fields that may be left out."""

import math
from collections.abc import Callable, Collection
from typing import Any

from nest.errors import FieldError

Validator = Callable[[Any, Any, Any], None]
LARGEST = 2.0**53
"""Whole numbers above this are not all told apart by float64."""


def _number(place: str, value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise FieldError(place, f"must be a finite number, is {value}")
    if isinstance(value, int) and abs(value) > LARGEST:
        raise FieldError(place, f"is too large: {value:.3g} is above 2**53")


def at_least(least: float) -> Validator:
    """A finite number of at least `least`."""

    def validate(_: Any, attribute: Any, value: Any) -> None:
        if value is not None:
            _number(attribute.name, value)
            if value < least:
                raise FieldError(attribute.name, f"must be at least {least:g}, is {value:g}")

    return validate


def above(bound: float) -> Validator:
    """A finite number above `bound`."""

    def validate(_: Any, attribute: Any, value: Any) -> None:
        if value is not None:
            _number(attribute.name, value)
            if value <= bound:
                raise FieldError(attribute.name, f"must be above {bound:g}, is {value:g}")

    return validate


def between(least: float, most: float) -> Validator:
    """A finite number from `least` to `most`."""

    def validate(_: Any, attribute: Any, value: Any) -> None:
        if value is not None:
            _number(attribute.name, value)
            if not least <= value <= most:
                raise FieldError(attribute.name, f"must be from {least:g} to {most:g}, is {value:g}")

    return validate


def one_of(allowed: Collection[Any]) -> Validator:
    """One of `allowed`."""

    def validate(_: Any, attribute: Any, value: Any) -> None:
        if value is not None and value not in allowed:
            told = ", ".join(str(item) for item in allowed)
            raise FieldError(attribute.name, f"must be one of {told}, is {value!r}")

    return validate


def not_empty(_: Any, attribute: Any, value: Any) -> None:
    """At least one item."""
    if value is not None and len(value) == 0:
        raise FieldError(attribute.name, "must not be empty")


def each(validator: Validator) -> Validator:
    """A sequence of which every item passes `validator`."""

    class Item:
        def __init__(self, name: str) -> None:
            self.name = name

    def validate(record: Any, attribute: Any, value: Any) -> None:
        if value is not None:
            for index, item in enumerate(value):
                validator(record, Item(f"{attribute.name}[{index}]"), item)

    return validate
