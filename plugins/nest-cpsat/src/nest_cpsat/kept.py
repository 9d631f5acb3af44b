"""Cache of intermediate values: most values of one case serve the next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy
from attrs import has

from nest.reuse import BoundedCache

MOST_KEPT = 48_000_000
"""Bytes of arrays kept of each kind between cases; a proof then needs some hundreds of MB, however many cases there
are."""


def kept() -> BoundedCache[Any]:
    """Cache that keeps `MOST_KEPT` bytes between two cases; one case may need more."""
    return BoundedCache(MOST_KEPT, _bytes_of, at_once=False)


def _bytes_of(value: Any) -> int:
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
