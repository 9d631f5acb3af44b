"""Protection of plug-ins' arguments: frozen records can be changed by `object.__setattr__`."""

import sys
from collections.abc import Callable
from functools import _lru_cache_wrapper, cache
from operator import attrgetter, is_not
from typing import Any

from attrs import fields


class Kept:
    """Contents of values for later comparison and restoration: records, lists, mappings and arrays inside them."""

    def __init__(self, *values: Any, besides: "Kept | None" = None) -> None:
        """Record the contents of `values`, except those recorded by `besides`."""
        self._noted: dict[int, tuple[Any, Any]] = {}
        known = {} if besides is None else besides._noted
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            kind = type(value)
            if kind in _PLAIN:
                continue
            if kind is tuple:
                waiting += value
            elif id(value) not in self._noted and id(value) not in known:
                content = _content(value)
                if content is not None:
                    self._noted[id(value)] = value, content
                    waiting += content if type(content) is tuple else content.values() if kind is dict else ()

    def put_back(self) -> str:
        """Restore changed contents; return the first change for people, or an empty text."""
        told = ""
        for value, before in self._noted.values():
            now = _content(value)
            if type(before) is tuple:
                changed = len(now) != len(before) or any(map(is_not, now, before))
            elif isinstance(value, dict):
                changed = list(now) != list(before) or any(map(is_not, now.values(), before.values()))
            else:
                changed = now.tobytes() != before.tobytes()
            if changed:
                told = told or _told(value, before, now)
                _restore(value, before)
        if told:
            _clear_caches()
        return told


def _clear_caches() -> None:
    """Clear nest's bounded caches: they may hold prices of changed records under the restored ones."""
    modules = [module for name, module in sys.modules.items() if name.startswith("nest.")]
    for value in [each for module in modules for each in vars(module).values()]:
        if isinstance(value, _lru_cache_wrapper) and value.cache_parameters()["maxsize"] is not None:
            value.cache_clear()


_PLAIN = frozenset({str, int, float, bool, type(None), frozenset, bytes})


@cache
def _reader(kind: Any) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]] | None:
    """Names of the fields of a record class and their reader; None: it is no such class."""
    if not hasattr(kind, "__attrs_attrs__"):
        return None
    names = tuple(each.name for each in fields(kind))
    if len(names) > 1:
        return names, attrgetter(*names)
    return names, lambda record: tuple(getattr(record, name) for name in names)


def _reader_of(value: Any) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]] | None:
    kind: Any = type(value)
    return _reader(kind)


def _content(value: Any) -> Any:
    """Contents of a value: a tuple, or a copy of a mapping or an array; None: untracked."""
    reader = _reader_of(value)
    if reader is not None:
        return reader[1](value)
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, dict):
        return dict(value)
    if hasattr(value, "__array_interface__") and value.flags.writeable:
        return value.copy()
    return None


def _told(value: Any, before: Any, now: Any) -> str:
    reader = _reader_of(value)
    if reader is None:
        return f"a {type(value).__name__}"
    field = next(name for name, old, new in zip(reader[0], before, now, strict=True) if old is not new)
    name = getattr(value, "name", "")
    return f"`{field}` of the {type(value).__name__}" + (f" {name!r:.60}" if name else "")


def _restore(value: Any, before: Any) -> None:
    reader = _reader_of(value)
    if reader is not None:
        for name, old in zip(reader[0], before, strict=True):
            object.__setattr__(value, name, old)
    elif isinstance(value, dict):
        value.clear()
        value.update(before)
    elif isinstance(value, list):
        value[:] = before
    else:
        value[...] = before
