"""Remembered results: kept with the object that computed them, and as long.

Without arguments a result is a `functools.cached_property`, large ones are in a `BoundedCache`, results of a function's
arguments alone in a bounded `functools.lru_cache`, results that outlive a question with the registry. Nothing is keyed
by `id`, and only answers are kept on disk (`nest.whatif.disk_cache`).
"""

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

Owner = TypeVar("Owner")
Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")

_MISSING: Any = object()


def remembered(
    method: Callable[Concatenate[Owner, Arguments], Value],
) -> Callable[Concatenate[Owner, Arguments], Value]:
    """Decorate a method so that its object keeps each result by the arguments; needs `define(slots=False)`."""
    name = f"{method.__qualname__} of"

    @wraps(method)
    def known(self: Any, /, *arguments: Any, **named: Any) -> Any:
        results = self.__dict__.get(name)
        if results is None:
            results = self.__dict__[name] = {}
        key = (arguments, *sorted(named.items())) if named else arguments
        found = results.get(key, _MISSING)
        if found is _MISSING:
            found = results[key] = method(self, *arguments, **named)
        return found

    return known


def once(known: dict[Any, Any], key: Hashable, make: Callable[[], Value]) -> Value:
    """Return the value of a key in `known`, shared by one or several objects; made if missing."""
    if key not in known:
        known[key] = make()
    found: Value = known[key]
    return found


class BoundedCache(Generic[Value]):
    """Values by key, none of them None: the least recently used make room, but never the latest."""

    def __init__(self, most: float, size: Callable[[Value], float] = lambda _: 1, *, at_once: bool = True) -> None:
        """Hold values of at most that total size; room is made `at_once`, or on request."""
        self._most, self._size, self._at_once, self._total = most, size, at_once, 0.0
        self._values: dict[Hashable, tuple[Value, float]] = {}

    def of(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value of a key, made if missing."""
        found = self.get(key)
        return self.keep(key, make()) if found is None else found

    def get(self, key: Hashable) -> Value | None:
        """Return the value of a key, now the most recently used; None: there is none."""
        found = self._values.pop(key, None)
        if found is None:
            return None
        self._values[key] = found
        return found[0]

    def keep(self, key: Hashable, value: Value) -> Value:
        """Keep and return the value, replacing the last of its key."""
        size = self._size(value)
        self._total += size - self._values.pop(key, (value, 0.0))[1]
        self._values[key] = value, size
        if self._at_once:
            self.make_room()
        return value

    def make_room(self) -> None:
        """Drop the least recently used."""
        for key in list(self._values)[:-1] if self._total > self._most else ():
            self._total -= self._values.pop(key, (None, 0.0))[1]  # Another thread may have been quicker.
            if self._total <= self._most:
                break
