"""Common behaviour of records: comparison, hash and text."""

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any

from attrs import fields


class Record:
    """Equality, hash and text of a frozen attrs class, as attrs writes them, read from its fields on demand.

    attrs compiles its own whenever nest starts: a tenth of `nest solve` of a small problem. Classes compared in loops
    still have those, which are three times as fast.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        of_class: Any = self.__class__
        compared = _compared(of_class)
        return bool(compared(self) == compared(other))

    def __hash__(self) -> int:
        of_class: Any = self.__class__
        return hash(_compared(of_class)(self))

    def __repr__(self) -> str:
        of_class: Any = self.__class__
        shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(of_class) if each.repr)
        return f"{of_class.__qualname__}({', '.join(shown)})"


@cache
def _compared(of_class: Any) -> Callable[[object], Any]:
    """Return a function that reads the compared values of a record."""
    return attrgetter(*(each.name for each in fields(of_class) if each.eq))
