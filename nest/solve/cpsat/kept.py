"""What is worked out once and kept while there is room for it: what one case needs is mostly what the next one does."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Generic, TypeVar

import numpy
from attrs import define, field, has

Value = TypeVar("Value")

MOST_KEPT = 48_000_000
"""Bytes of arrays that are kept of each kind from one case to the next: a proof then needs some hundreds of MB, however
many cases there are."""


@define(eq=False)
class Kept(Generic[Value]):
    """Values by key, the oldest first."""

    _values: dict[Hashable, Value] = field(factory=dict, init=False)
    _bytes: dict[Hashable, int] = field(factory=dict, init=False)

    def of(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of a key, made where it is not there."""
        if key not in self._values:
            self._values[key] = value = make()
            self._bytes[key] = _bytes_of(value)
        return self._values[key]

    def trim(self) -> None:
        """Let the oldest go until the others take `MOST_KEPT` bytes at most; between two cases, as one may need all."""
        total = sum(self._bytes.values())
        while total > MOST_KEPT:
            oldest = next(iter(self._values))
            del self._values[oldest]
            total -= self._bytes.pop(oldest)


def _bytes_of(value: Any) -> int:
    """Bytes of the arrays that a value holds."""
    if isinstance(value, numpy.ndarray):
        return value.nbytes
    if isinstance(value, Mapping):
        return _of_all(value.values())
    if isinstance(value, tuple):
        return _of_all(value)
    if has(type(value)):
        return _of_all(getattr(value, name) for name in _fields(type(value)))
    return 0


def _fields(kind: type[Any]) -> tuple[str, ...]:
    return tuple(each.name for each in kind.__attrs_attrs__ if each.name not in ("candidate", "instance"))


def _of_all(values: Iterable[Any]) -> int:
    return sum(map(_bytes_of, values))
